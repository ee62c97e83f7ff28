package mcast

import (
	"testing"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/step"
)

// scripted runs one collective that loses the given datagrams. Every cutoff is due to a loss, because
// timers wait.
func scripted(t *testing.T, s Shape, cfg Config, drop func(to, sub int, psn uint32) bool) *cluster {
	t.Helper()
	w := newWorld(t, 7, len(s.Counts), Limits{Alpha: 10 * step.Microsecond}, 16)
	w.calm()
	c := w.open(s, network{drop: drop}, cfg)
	w.run()
	w.empty()
	return c
}

func allLost(int, int, uint32) bool { return true }

// Three ranks each miss the other two blocks. If a rank answered only once it has every requested
// chunk, all three would wait for each other forever. Because a rank answers range by range, each gets
// the own block of its left neighbour, and then passes it on.
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

// When every datagram is lost, the fetches form a ring Allgather (Section III-C): each rank reads every
// foreign chunk once, and each chunk is read once from its owner.
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

// Only one rank reads from the root of a Broadcast, whatever the ranks miss.
func TestRootIsReadByOneRankOnly(t *testing.T) {
	c := scripted(t, broadcast(9, 4, 1001, 10, 2), Config{}, allLost)
	for _, m := range c.ranks {
		if want := uint64(101); m.rank != 4 && m.op.Stats().Repaired != want {
			t.Errorf("rank %d repaired %d, want %d", m.rank, m.op.Stats().Repaired, want)
		}
	}
}

// Each datagram is lost in turn: that rank repairs that chunk, and no rank repairs another one. The
// short tail is in another subgroup than the head.
func TestEachSingleLoss(t *testing.T) {
	s := allgather(4, 50, 16, 2, 2)
	g := oneRound(t, s)
	for _, flow := range []Flow{FlowNone, FlowCredit} {
		for sub := range g.Streams() {
			for psn := range g.PSNs(sub) {
				for to := range g.Size() {
					if g.Owner(sub, psn) == to {
						continue
					}
					c := scripted(t, s, Config{Flow: flow}, func(r, sb int, p uint32) bool {
						return r == to && sb == sub && p == psn
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

// A collective of one rank completes at once.
func TestAlone(t *testing.T) {
	for _, s := range []Shape{allgather(1, 0, 8, 1, 1), allgather(1, 100, 8, 3, 4), broadcast(1, 0, 17, 8, 2)} {
		for _, flow := range []Flow{FlowNone, FlowCredit} {
			o := New(Config{Geometry: oneRound(t, s), Est: NewEstimator(Limits{}), Flow: flow, Pool: NewPool(4, nil)})
			acts := o.Step(5, step.Event{Kind: step.EvStart}, nil)
			if len(acts) != 2 || acts[0].Kind != step.ActComplete || acts[1].Kind != step.ActClosed || o.Timer() != step.Never {
				t.Errorf("%v, %v: %+v", s, flow, acts)
			}
			if o.cfg.Pool.Lent() != 0 {
				t.Errorf("%v, %v: %d places are still lent", s, flow, o.cfg.Pool.Lent())
			}
		}
	}
}

// A collective without bytes is a barrier and a handshake.
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

// A collective that is lent a single place, because others hold the rest, still ends: its places are
// granted one by one.
func TestCreditOfOnePlace(t *testing.T) {
	for _, room := range []uint64{1, 2, 64, 1024} {
		w := newWorld(t, 3, 5, Limits{Alpha: 10 * step.Microsecond}, room)
		for _, h := range w.hosts {
			for h.pool.Lent() < room {
				h.pool.join(1000, onePlace)
			}
		}
		before := w.hosts[0].pool.Lent()
		s := allgather(5, 300, 8, 2, 2)
		w.open(s, network{Faults: clustertest.Faults{Loss: 0.1}}, Config{Flow: FlowCredit})
		w.run()
		for r, h := range w.hosts {
			if h.pool.Lent() != before {
				t.Errorf("room %d, rank %d: %d lent, %d before", room, r, h.pool.Lent(), before)
			}
		}
	}
}
