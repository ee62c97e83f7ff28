package mcast

import (
	"testing"

	"github.com/allcast/allcast/internal/step"
)

// scripted runs one collective on which datagrams are lost by plan, with
// patience: every cutoff is due to a loss.
func scripted(t *testing.T, s Shape, cfg Config, drop func(g *Geometry) func(to, sub int, psn uint32) bool) *cluster {
	t.Helper()
	w := newWorld(t, 7, len(s.Counts), Limits{Alpha: 10 * step.Microsecond}, 16)
	w.calm = true
	g := oneRound(t, s)
	c := w.open(g, newMemory(w.rng, s.Counts), network{drop: drop(g)}, cfg)
	w.run(c)
	w.empty()
	return c
}

func allLost(*Geometry) func(int, int, uint32) bool {
	return func(int, int, uint32) bool { return true }
}

// With three ranks that each miss the other two blocks, a rank that answers only
// when it has all that was asked for waits for ever: so does its neighbour, round
// the ring. Answered range by range, each gets its left neighbour's own block, then
// passes it on.
func TestThreeRanksThatMissEachOther(t *testing.T) {
	for _, flow := range []Flow{FlowNone, FlowCredit} {
		for _, m := range []int{1, 2, 3} {
			c := scripted(t, allgather(3, 1000, 64, m, 2), Config{Flow: flow}, allLost)
			for _, m := range c.ranks {
				if got := m.op.Stats().Repaired; got != 32 {
					t.Errorf("%v: rank %d repaired %d chunks, want 32", flow, m.rank, got)
				}
			}
		}
	}
}

// When every datagram is lost, what remains is a ring Allgather (Section III-C):
// each rank reads every foreign chunk once, and each owner is read from once.
func TestTotalLossIsARing(t *testing.T) {
	for _, p := range []int{2, 3, 5, 8, 13} {
		c := scripted(t, allgather(p, 333, 32, 2, 3), Config{}, allLost)
		for sub := range c.reads {
			for psn, n := range c.reads[sub] {
				if n != 1 {
					t.Errorf("P=%d: PSN %d of subgroup %d was read %d times from its owner", p, psn, sub, n)
				}
			}
		}
	}
}

// The root of a Broadcast is asked by one rank only, whatever everybody misses.
func TestRootIsReadByOneRankOnly(t *testing.T) {
	c := scripted(t, broadcast(9, 4, 1001, 10, 2), Config{}, allLost)
	for _, m := range c.ranks {
		if want := uint64(101); m.rank != 4 && m.op.Stats().Repaired != want {
			t.Errorf("rank %d repaired %d, want %d", m.rank, m.op.Stats().Repaired, want)
		}
	}
}

// Each single datagram lost in turn: exactly that chunk is repaired, at exactly
// that rank. The tail is short, and sits in another subgroup than the head.
func TestEachSingleLoss(t *testing.T) {
	s := allgather(4, 50, 16, 2, 2)
	g := oneRound(t, s)
	for _, flow := range []Flow{FlowNone, FlowCredit} {
		for sub := range g.Subgroups() {
			for psn := range g.PSNs(sub) {
				for to := range g.Size() {
					if g.Owner(sub, psn) == to {
						continue
					}
					c := scripted(t, s, Config{Flow: flow}, func(*Geometry) func(int, int, uint32) bool {
						return func(r, sb int, p uint32) bool { return r == to && sb == sub && p == psn }
					})
					for _, m := range c.ranks {
						want := uint64(0)
						if m.rank == to {
							want = 1
						}
						if got := m.op.Stats().Repaired; got != want {
							t.Fatalf("PSN %d of subgroup %d lost at rank %d: rank %d repaired %d", psn, sub, to, m.rank, got)
						}
					}
				}
			}
		}
	}
}

// One rank alone needs nobody, whatever is asked for.
func TestAlone(t *testing.T) {
	for _, s := range []Shape{allgather(1, 0, 8, 1, 1), allgather(1, 100, 8, 3, 4), broadcast(1, 0, 17, 8, 2)} {
		for _, flow := range []Flow{FlowNone, FlowCredit} {
			o := New(Config{Geometry: oneRound(t, s), Est: NewEstimator(Limits{}), Flow: flow, Pool: NewPool(4, nil)})
			acts := o.Step(5, step.Event{Kind: step.EvStart}, nil)
			if len(acts) != 2 || acts[0].Kind != step.ActComplete || acts[1].Kind != step.ActClosed || o.Timer() != step.Never {
				t.Errorf("%v, %v: %+v", s, flow, acts)
			}
			if o.cfg.Pool.Lent() != 0 {
				t.Errorf("%v, %v: still holds %d", s, flow, o.cfg.Pool.Lent())
			}
		}
	}
}

// Nothing to send is a barrier and a handshake.
func TestNothingToSend(t *testing.T) {
	for p := 2; p <= 9; p++ {
		for _, flow := range []Flow{FlowNone, FlowCredit} {
			c := scripted(t, allgather(p, 0, 8, 2, 2), Config{Flow: flow}, allLost)
			for _, m := range c.ranks {
				if m.op.Stats() != (step.Stats{}) {
					t.Errorf("P=%d, rank %d: %+v", p, m.rank, m.op.Stats())
				}
			}
		}
	}
}

// An operation that is lent a single place, because others hold the rest, still
// ends: places are granted one by one.
func TestCreditOfOnePlace(t *testing.T) {
	for _, room := range []uint64{1, 2, 64, 1024} {
		w := newWorld(t, 3, 5, Limits{Alpha: 10 * step.Microsecond}, room)
		for _, h := range w.hosts {
			for h.pool.Lent() < room {
				h.pool.join(1000)
			}
		}
		before := w.hosts[0].pool.Lent()
		s := allgather(5, 300, 8, 2, 2)
		w.run(w.open(oneRound(t, s), newMemory(w.rng, s.Counts), network{loss: 0.1}, Config{Flow: FlowCredit}))
		for r, h := range w.hosts {
			if h.pool.Lent() != before {
				t.Errorf("room %d, rank %d: %d lent, %d before", room, r, h.pool.Lent(), before)
			}
		}
	}
}
