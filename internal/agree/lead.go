package agree

import (
	"slices"

	"github.com/allcast/allcast/internal/wire"
)

// lead is the state of the leader.
type lead struct {
	round    uint32
	known    Set // ranks that have answered
	called   Set
	hurry    bool             // whether some rank no longer waits
	highest  *wire.AgreeValue // accepted value with the highest ballot
	free     bool             // whether no rank had accepted a value: the leader may propose any value
	proposed *wire.AgreeValue
	accepted Set
}

// startLeading asks every rank for its state.
func (m *Machine) startLeading() {
	n := m.cfg.Size
	m.lead = &lead{known: newSet(n), called: newSet(n), accepted: newSet(n), highest: m.value}
	m.broadcast(-1, wire.Agree{Step: wire.AgreeAsk, Ballot: m.ballot(), Dead: slices.Clone(m.dead)})
}

// ballot returns the current ballot of this leader. Ballots of later leaders are higher.
func (m *Machine) ballot() uint64 { return uint64(m.cfg.Rank)<<32 | uint64(m.lead.round) }

// recordState handles the state of a rank, solicited or not. A rank that addresses this one as its
// leader has given up all lower ranks.
func (l *lead) recordState(from int, a *wire.Agree) {
	l.known.add(from)
	if a.Called {
		l.called.add(from)
	}
	l.hurry = l.hurry || a.Hurry
	if v := a.Value; v != nil && !l.free && (l.highest == nil || v.Ballot > l.highest.Ballot) {
		l.highest = v
	}
}

// advance proposes a value or decides it, as far as the answers allow.
func (m *Machine) advance() {
	l := m.lead
	if l.proposed != nil && l.free && m.outdated(l.proposed) {
		// No rank has acted on the proposal: only this leader can announce a decision.
		l.round++
		l.proposed, l.accepted = nil, newSet(m.cfg.Size)
	}
	if l.proposed == nil {
		if l.proposed = m.choose(); l.proposed == nil {
			return
		}
		l.proposed.Ballot = m.ballot()
		m.value = l.proposed
		m.broadcast(-1, wire.Agree{Step: wire.AgreePropose, Ballot: l.proposed.Ballot, Value: l.proposed})
	}
	if m.includesPresent(l.accepted) {
		m.decide(l.proposed, m.cfg.Rank)
	}
}

// outdated reports whether a rank of a proposed membership has died.
func (m *Machine) outdated(v *wire.AgreeValue) bool {
	return v.Why == Agreed && slices.ContainsFunc(Set(v.Ranks).Ranks(), m.dead.Has)
}

// includesPresent reports whether a set contains all other participating ranks.
func (m *Machine) includesPresent(s Set) bool {
	for r := range m.cfg.Size {
		if m.present(r) && !s.Has(r) {
			return false
		}
	}
	return true
}

// choose returns the value to propose, or nil if it is too early.
func (m *Machine) choose() *wire.AgreeValue {
	l := m.lead
	if !m.includesPresent(l.known) {
		return nil
	}
	if !l.free && l.highest != nil {
		v := *l.highest
		return &v
	}
	l.free = true
	var living, late, closed []int
	for r := range m.cfg.Size {
		switch {
		case m.dead.Has(r):
		case m.gone.Has(r):
			closed = append(closed, r)
		case l.called.Has(r) || (r == m.cfg.Rank && m.called):
			living = append(living, r)
		default:
			late = append(late, r)
		}
	}
	switch {
	case closed != nil:
		return &wire.AgreeValue{Why: Closed, Ranks: newSet(m.cfg.Size, closed...)}
	case late == nil:
		return &wire.AgreeValue{ID: m.id, Ranks: newSet(m.cfg.Size, living...)}
	case l.hurry || m.hurry:
		return &wire.AgreeValue{Why: Late, Ranks: newSet(m.cfg.Size, late...)}
	}
	return nil
}
