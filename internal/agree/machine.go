package agree

import (
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Why an agreement failed; AgreeValue.Why.
const (
	Agreed   uint8 = iota // it did not
	Late                  // Ranks live, but did not come
	Closed                // Ranks have closed the communicator
	Excluded              // Ranks, ourselves, were taken for lost
)

// Config describes a rank of a communicator.
type Config struct {
	Rank, Size int
	Patience   step.Time // how long to wait for ranks that live and do not come; 0: for ever
}

// A Send is a message to another rank.
type Send struct {
	To  int
	Msg wire.Agree
}

// A Machine is one rank's part of one agreement. Its methods must not be called
// concurrently.
type Machine struct {
	cfg     Config
	sends   []Send
	dead    Set
	gone    Set // they live, but have closed the communicator
	leader  int // whom we follow: the lowest that is neither; -1: we have not heard of the agreement
	called  bool
	id      uint32 // of the communicator that we would make
	hurry   bool   // we wait no longer
	ticks   int
	tickAt  step.Time
	value   *wire.AgreeValue // what we have accepted
	outcome *wire.AgreeValue
	lead    *lead // nil: another one leads
}

// looks is how often we look at the clock before we are out of patience. To look only
// once would not do: had we been stopped ourselves, those who came meanwhile might be
// among what we have not read.
const looks = 4

// New returns a Machine that has heard of nothing.
func New(cfg Config) *Machine {
	return &Machine{cfg: cfg, dead: newSet(cfg.Size), gone: newSet(cfg.Size), leader: -1}
}

// Outcome is what was decided; nil: nothing yet.
func (m *Machine) Outcome() *wire.AgreeValue { return m.outcome }

// Sends returns the messages to send, and forgets them.
func (m *Machine) Sends() []Send {
	s := m.sends
	m.sends = nil
	return s
}

// Call says that the user has come. If ours is the proposal that is accepted, the new
// communicator gets this id.
func (m *Machine) Call(now step.Time, id uint32) {
	if m.outcome != nil {
		return
	}
	m.called, m.id = true, id
	m.inform(now)
}

// Hurry says that we do not want to wait for others any longer.
func (m *Machine) Hurry(now step.Time) {
	if m.outcome == nil && !m.hurry {
		m.hurry = true
		m.inform(now)
	}
}

// Dead says that a rank is lost.
func (m *Machine) Dead(rank int) {
	if rank < 0 || rank >= m.cfg.Size || m.dead.Has(rank) {
		return
	}
	m.dead.add(rank)
	if rank == m.cfg.Rank && m.outcome == nil {
		m.outcome = &wire.AgreeValue{Why: Excluded, Ranks: newSet(m.cfg.Size)}
		Set(m.outcome.Ranks).add(rank)
		return
	}
	if m.leader >= 0 {
		m.settle()
	}
}

// NextTimer is when Timer wants to be called.
func (m *Machine) NextTimer() step.Time {
	if m.outcome != nil || m.leader < 0 || m.hurry || m.cfg.Patience <= 0 {
		return step.Never
	}
	return m.tickAt + m.tick()
}

func (m *Machine) tick() step.Time { return max(1, m.cfg.Patience/looks) }

// Timer looks at the clock.
func (m *Machine) Timer(now step.Time) {
	if now < m.NextTimer() {
		return
	}
	m.tickAt = now
	if m.ticks++; m.ticks >= looks {
		m.Hurry(now)
	}
}

// Message takes a message from another rank, which is not dead.
func (m *Machine) Message(now step.Time, from int, a *wire.Agree) {
	if from < 0 || from >= m.cfg.Size || m.dead.Has(from) || !m.sane(a) {
		return
	}
	if m.outcome != nil {
		m.remind(from, a)
		return
	}
	for _, r := range Set(a.Dead).Ranks() {
		m.Dead(r)
	}
	if m.outcome != nil {
		return // it is we who are dead
	}
	switch a.Step {
	case wire.AgreeAsk:
		m.follow(now, from)
	case wire.AgreeState:
		m.hear(now)
		if m.lead != nil {
			m.lead.know(from, a)
		}
	case wire.AgreePropose:
		m.accept(from, a)
	case wire.AgreeAccept:
		if m.lead != nil && a.Ballot == m.ballot() {
			m.lead.accepted.add(from)
		}
	case wire.AgreeCommit:
		m.decide(a.Value, from)
		return
	case wire.AgreeGone:
		m.gone.add(from)
	}
	m.settle()
}

// sane reports whether a message names ranks that exist only.
func (m *Machine) sane(a *wire.Agree) bool {
	return Set(a.Dead).fits(m.cfg.Size) && (a.Value == nil || Set(a.Value.Ranks).fits(m.cfg.Size))
}

// remind tells a rank that is behind what was decided.
func (m *Machine) remind(to int, a *wire.Agree) {
	if m.outcome.Why != Excluded && (a.Step == wire.AgreeAsk || a.Step == wire.AgreeState || a.Step == wire.AgreePropose) {
		m.send(to, wire.Agree{Step: wire.AgreeCommit, Value: m.outcome})
	}
}

// follow answers a leader. It knows that those below it are dead, which its message
// has told us too, or have closed the communicator.
func (m *Machine) follow(now step.Time, from int) {
	m.hear(now)
	if from < m.leader || from > m.cfg.Rank && m.leader == m.cfg.Rank {
		return
	}
	for r := range from {
		if !m.dead.Has(r) {
			m.gone.add(r)
		}
	}
	if m.leader == from {
		m.report() // a new one is reported to when settle finds it
	}
}

func (m *Machine) accept(from int, a *wire.Agree) {
	if from != m.leader || m.lead != nil || (m.value != nil && a.Ballot < m.value.Ballot) {
		return
	}
	v := *a.Value
	v.Ballot = a.Ballot
	m.value = &v
	m.send(from, wire.Agree{Step: wire.AgreeAccept, Ballot: a.Ballot})
}

// decide ends the agreement. All others hear of it before we act on it.
func (m *Machine) decide(v *wire.AgreeValue, from int) {
	m.outcome, m.lead = v, nil
	for r := range m.cfg.Size {
		if r != from && m.present(r) {
			m.send(r, wire.Agree{Step: wire.AgreeCommit, Value: v})
		}
	}
}

// present reports whether a rank is another one that takes part.
func (m *Machine) present(r int) bool {
	return r != m.cfg.Rank && !m.dead.Has(r) && !m.gone.Has(r)
}

func (m *Machine) send(to int, a wire.Agree) { m.sends = append(m.sends, Send{to, a}) }

// hear starts the clock when the agreement is first heard of.
func (m *Machine) hear(now step.Time) {
	if m.leader < 0 {
		m.tickAt = now
		m.elect()
	}
}

// inform tells the leader that something is new with us.
func (m *Machine) inform(now step.Time) {
	if m.leader < 0 {
		m.hear(now)
	} else {
		m.report()
	}
	m.settle()
}

func (m *Machine) report() {
	if m.lead == nil {
		m.send(m.leader, wire.Agree{Step: wire.AgreeState, Called: m.called, Hurry: m.hurry, Dead: m.dead.copy(), Value: m.value})
	}
}

// elect finds out whom to follow, and tells it what we know.
func (m *Machine) elect() {
	l := 0
	for l != m.cfg.Rank && !m.present(l) {
		l++
	}
	if l == m.leader {
		return
	}
	m.leader = l
	if l == m.cfg.Rank {
		m.begin()
		return
	}
	m.report()
}

// settle moves on as far as what we know allows.
func (m *Machine) settle() {
	if m.outcome != nil || m.leader < 0 {
		return
	}
	m.elect()
	if m.lead != nil {
		m.pursue()
	}
}
