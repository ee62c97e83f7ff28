package agree

import (
	"slices"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Reasons why an agreement failed, for AgreeValue.Why.
const (
	Agreed   uint8 = iota // no failure
	Late                  // Ranks live but did not call
	Closed                // Ranks have closed the communicator
	Excluded              // Ranks, which is this rank, was declared lost
)

// Config describes a rank of a communicator.
type Config struct {
	Rank, Size int
	Patience   step.Time // time to wait for living ranks that do not call; 0 for ever
}

// A Send is a message to another rank.
type Send struct {
	To  int
	Msg wire.Agree
}

// A Machine is one rank's part of one agreement. Its methods must not be called concurrently.
type Machine struct {
	cfg     Config
	sends   []Send
	dead    Set
	gone    Set // living ranks that have closed the communicator
	leader  int // lowest rank that is neither dead nor gone; -1 before the agreement is known
	called  bool
	id      uint32 // id that this rank offers for the new communicator
	hurry   bool   // whether this rank no longer waits
	ticks   int
	tickAt  step.Time
	value   *wire.AgreeValue // value that this rank has accepted
	outcome *wire.AgreeValue
	lead    *lead // nil if another rank leads
}

// timerChecks is the number of timer checks before patience runs out. One check is not enough: if this
// process was stopped, messages of ranks that called meanwhile may still be unread.
const timerChecks = 4

// New returns a Machine that does not know of the agreement yet.
func New(cfg Config) *Machine {
	return &Machine{cfg: cfg, dead: newSet(cfg.Size), gone: newSet(cfg.Size), leader: -1}
}

// Outcome returns the decision, or nil if there is none yet.
func (m *Machine) Outcome() *wire.AgreeValue { return m.outcome }

// Sends returns the pending messages and clears them.
func (m *Machine) Sends() []Send {
	s := m.sends
	m.sends = nil
	return s
}

// Call reports that the user has called. If this rank's proposal is accepted, the new communicator
// gets this id.
func (m *Machine) Call(now step.Time, id uint32) {
	if m.outcome != nil {
		return
	}
	m.called, m.id = true, id
	m.reportChange(now)
}

// Hurry reports that this rank no longer waits for others.
func (m *Machine) Hurry(now step.Time) {
	if m.outcome == nil && !m.hurry {
		m.hurry = true
		m.reportChange(now)
	}
}

// Dead reports that a rank is lost.
func (m *Machine) Dead(rank int) {
	if rank < 0 || rank >= m.cfg.Size || m.dead.Has(rank) {
		return
	}
	m.dead.add(rank)
	if rank == m.cfg.Rank && m.outcome == nil {
		m.outcome = &wire.AgreeValue{Why: Excluded, Ranks: newSet(m.cfg.Size, rank)}
		return
	}
	if m.leader >= 0 {
		m.settle()
	}
}

// NextTimer returns the time at which the driver should call Timer.
func (m *Machine) NextTimer() step.Time {
	if m.outcome != nil || m.leader < 0 || m.hurry || m.cfg.Patience <= 0 {
		return step.Never
	}
	return m.tickAt + max(1, m.cfg.Patience/timerChecks)
}

// Timer counts the expired timer, and stops waiting when patience runs out.
func (m *Machine) Timer(now step.Time) {
	if now < m.NextTimer() {
		return
	}
	m.tickAt = now
	if m.ticks++; m.ticks >= timerChecks {
		m.Hurry(now)
	}
}

// Message handles a message from another rank, which is not dead.
func (m *Machine) Message(now step.Time, from int, a *wire.Agree) {
	if from < 0 || from >= m.cfg.Size || m.dead.Has(from) || !m.valid(a) {
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
		return // this rank was declared dead
	}
	switch a.Step {
	case wire.AgreeAsk:
		m.follow(now, from)
	case wire.AgreeState:
		m.activate(now)
		if m.lead != nil {
			m.lead.recordState(from, a)
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

// valid reports whether a message names existing ranks only.
func (m *Machine) valid(a *wire.Agree) bool {
	return Set(a.Dead).fits(m.cfg.Size) && (a.Value == nil || Set(a.Value.Ranks).fits(m.cfg.Size))
}

// remind tells a rank that is behind the decision.
func (m *Machine) remind(to int, a *wire.Agree) {
	behind := a.Step == wire.AgreeAsk || a.Step == wire.AgreeState || a.Step == wire.AgreePropose
	if m.outcome.Why != Excluded && behind {
		m.send(to, wire.Agree{Step: wire.AgreeCommit, Value: m.outcome})
	}
}

// follow answers a leader. Ranks below the leader are dead, as its message has said, or have closed
// the communicator.
func (m *Machine) follow(now step.Time, from int) {
	m.activate(now)
	if from < m.leader || from > m.cfg.Rank && m.leader == m.cfg.Rank {
		return
	}
	for r := range from {
		if !m.dead.Has(r) {
			m.gone.add(r)
		}
	}
	if m.leader == from {
		m.report() // settle reports to a new leader
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

// decide ends the agreement. This rank tells all others before it acts on the decision.
func (m *Machine) decide(v *wire.AgreeValue, from int) {
	m.outcome, m.lead = v, nil
	m.broadcast(from, wire.Agree{Step: wire.AgreeCommit, Value: v})
}

// present reports whether r is another participating rank.
func (m *Machine) present(r int) bool {
	return r != m.cfg.Rank && !m.dead.Has(r) && !m.gone.Has(r)
}

func (m *Machine) send(to int, a wire.Agree) { m.sends = append(m.sends, Send{to, a}) }

// broadcast sends a message to all other participating ranks except one.
func (m *Machine) broadcast(except int, a wire.Agree) {
	for r := range m.cfg.Size {
		if r != except && m.present(r) {
			m.send(r, a)
		}
	}
}

// activate starts the clock when this rank first learns of the agreement.
func (m *Machine) activate(now step.Time) {
	if m.leader < 0 {
		m.tickAt = now
		m.elect()
	}
}

// reportChange tells the leader about a change of this rank's state.
func (m *Machine) reportChange(now step.Time) {
	if m.leader < 0 {
		m.activate(now) // reports to the elected leader
	} else {
		m.report()
	}
	m.settle()
}

func (m *Machine) report() {
	if m.lead == nil {
		m.send(m.leader, wire.Agree{
			Step: wire.AgreeState, Called: m.called, Hurry: m.hurry, Dead: slices.Clone(m.dead), Value: m.value,
		})
	}
}

// elect determines the leader and reports this rank's state to it.
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
		m.startLeading()
		return
	}
	m.report()
}

// settle advances the agreement as far as the known state allows.
func (m *Machine) settle() {
	if m.outcome != nil || m.leader < 0 {
		return
	}
	m.elect()
	if m.lead != nil {
		m.advance()
	}
}
