package agree

import "github.com/allcast/allcast/internal/wire"

// lead is what the leader knows.
type lead struct {
	round    uint32
	known    Set // who has answered
	called   Set
	hurry    bool             // somebody waits no longer
	highest  *wire.AgreeValue // the accepted value of the highest ballot
	free     bool             // nobody had accepted anything: we may propose what we like
	proposed *wire.AgreeValue
	accepted Set
}

// begin asks everybody what they know.
func (m *Machine) begin() {
	m.lead = &lead{known: newSet(m.cfg.Size), called: newSet(m.cfg.Size), accepted: newSet(m.cfg.Size), highest: m.value}
	m.all(wire.Agree{Step: wire.AgreeAsk, Ballot: m.ballot(), Dead: m.dead.copy()})
}

// ballot is ours: those of later leaders are higher.
func (m *Machine) ballot() uint64 { return uint64(m.cfg.Rank)<<32 | uint64(m.lead.round) }

func (m *Machine) all(a wire.Agree) {
	for r := range m.cfg.Size {
		if m.present(r) {
			m.send(r, a)
		}
	}
}

// know takes a rank's answer, or news that came unasked: whoever speaks to us
// as its leader has given up those before us.
func (l *lead) know(from int, a *wire.Agree) {
	l.known.add(from)
	if a.Called {
		l.called.add(from)
	}
	l.hurry = l.hurry || a.Hurry
	if v := a.Value; v != nil && !l.free && (l.highest == nil || v.Ballot > l.highest.Ballot) {
		l.highest = v
	}
}

// pursue moves the leader on.
func (m *Machine) pursue() {
	l := m.lead
	if l.proposed != nil && l.free && m.outdated(l.proposed) {
		// Nobody has acted on it: only we could have said so.
		l.round++
		l.proposed, l.accepted = nil, newSet(m.cfg.Size)
	}
	if l.proposed == nil {
		if l.proposed = m.choose(); l.proposed == nil {
			return
		}
		l.proposed.Ballot = m.ballot()
		m.value = l.proposed
		m.all(wire.Agree{Step: wire.AgreePropose, Ballot: l.proposed.Ballot, Value: l.proposed})
	}
	if m.everybody(l.accepted) {
		m.decide(l.proposed, m.cfg.Rank)
	}
}

// outdated reports whether a rank that was to go on has died.
func (m *Machine) outdated(v *wire.AgreeValue) bool {
	if v.Why != Agreed {
		return false
	}
	for _, r := range Set(v.Ranks).Ranks() {
		if m.dead.Has(r) {
			return true
		}
	}
	return false
}

// everybody reports whether all others that take part are in a set.
func (m *Machine) everybody(s Set) bool {
	for r := range m.cfg.Size {
		if m.present(r) && !s.Has(r) {
			return false
		}
	}
	return true
}

// choose finds what to propose; nil: it is too early.
func (m *Machine) choose() *wire.AgreeValue {
	l := m.lead
	if !m.everybody(l.known) {
		return nil
	}
	if !l.free && l.highest != nil {
		v := *l.highest
		return &v
	}
	l.free = true
	living, late, closed := newSet(m.cfg.Size), newSet(m.cfg.Size), newSet(m.cfg.Size)
	nLate, nClosed := 0, 0
	for r := range m.cfg.Size {
		switch {
		case m.dead.Has(r):
		case m.gone.Has(r):
			closed.add(r)
			nClosed++
		case l.called.Has(r) || (r == m.cfg.Rank && m.called):
			living.add(r)
		default:
			late.add(r)
			nLate++
		}
	}
	switch {
	case nClosed > 0:
		return &wire.AgreeValue{Why: Closed, Ranks: closed}
	case nLate == 0:
		return &wire.AgreeValue{ID: m.id, Ranks: living}
	case l.hurry || m.hurry:
		return &wire.AgreeValue{Why: Late, Ranks: late}
	}
	return nil
}
