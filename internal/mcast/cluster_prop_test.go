package mcast

import (
	"testing"

	"github.com/allcast/allcast/internal/step"
	"pgregory.net/rapid"
)

// drawWorld draws processes, and how long things take between them.
func drawWorld(t *rapid.T, size int) *world {
	limits := Limits{
		LinkRate: rapid.SampledFrom([]float64{0, 0.1, 7}).Draw(t, "link rate"),
		Alpha:    step.Time(rapid.SampledFrom([]int64{1, 20, 1000}).Draw(t, "alpha")) * step.Microsecond,
		MinAlpha: 1 * step.Microsecond, MaxAlpha: step.Millisecond,
	}
	w := newWorld(t, rapid.Uint64().Draw(t, "seed"), size, limits, rapid.Uint64Range(1, 64).Draw(t, "room"))
	w.tick = step.Time(rapid.SampledFrom([]int64{0, 100, 2000}).Draw(t, "tick"))
	if rapid.IntRange(0, 3).Draw(t, "somebody is slow") == 0 {
		w.slow = rapid.IntRange(0, size-1).Draw(t, "slow")
	}
	return w
}

func drawConfig(t *rapid.T) Config {
	return Config{
		Comm: 3, Seq: 77,
		Flow:     rapid.SampledFrom([]Flow{FlowNone, FlowCredit}).Draw(t, "flow"),
		Batch:    rapid.Uint32Range(0, 20).Draw(t, "batch"),
		Overhead: rapid.IntRange(0, 60).Draw(t, "overhead"),
	}
}

func drawNetwork(t *rapid.T) network {
	p := rapid.SampledFrom([]float64{0, 0.01, 0.1, 0.5, 1})
	return network{
		loss: p.Draw(t, "loss"), reorder: p.Draw(t, "reorder"),
		duplicate: rapid.SampledFrom([]float64{0, 0.01, 0.3}).Draw(t, "duplicate"),
	}
}

// Any collective on any network comes to its end with the right bytes, and
// everything in cluster_check_test.go holds on the way.
func TestClusterDelivers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t, 40, 6)
		w := drawWorld(t, len(s.Counts))
		net, cfg := drawNetwork(t), drawConfig(t)
		c := w.open(oneRound(t, s), newMemory(w.rng, s.Counts), net, cfg)
		w.run(c)
		w.empty()
	})
}

// empty checks that all room came back.
func (w *world) empty() {
	for r, h := range w.hosts {
		if h.pool.Lent() != 0 || h.pool.ops != 0 {
			w.t.Fatalf("rank %d: %d places are still lent, to %d operations", r, h.pool.Lent(), h.pool.ops)
		}
	}
}

// Without loss and with patience, nothing is fetched: multicast and the final
// handshake are all there is (Section III-C), duplicates and reordering or not.
func TestClusterFetchesNothingWithoutLoss(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t, 24, 6)
		w := drawWorld(t, len(s.Counts))
		w.calm = true
		net, cfg := drawNetwork(t), drawConfig(t)
		net.loss = 0
		c := w.open(oneRound(t, s), newMemory(w.rng, s.Counts), net, cfg)
		w.run(c)
		for _, m := range c.ranks {
			if st := m.op.Stats(); st.Repaired != 0 || st.Late != 0 || m.op.Times().Fetch != 0 {
				t.Fatalf("rank %d: %+v, fetch at %d", m.rank, st, m.op.Times().Fetch)
			}
		}
	})
}

// A call that needs several rounds: one after the other, into the same buffers.
func TestClusterRounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t, 12, 12)
		plan := mustPlan(t, s, mustLayout(t, rapid.IntRange(4, 5).Draw(t, "PSN bits")))
		w := drawWorld(t, len(s.Counts))
		net, cfg, mem := drawNetwork(t), drawConfig(t), newMemory(w.rng, s.Counts)
		for _, g := range plan {
			w.run(w.open(g, mem, net, cfg))
			cfg.Seq++
		}
		for r := range s.Counts {
			if string(mem.recv[r]) != string(mem.want) {
				t.Fatalf("rank %d has not got everything after %d rounds", r, len(plan))
			}
		}
		w.empty()
	})
}

// On a network that keeps the order, credit keeps every receive queue within its
// room, whatever is lost and however slow a rank is: marks overtake datagrams, and
// a rank that has some waiting takes one within alpha (see keepUp).
func TestClusterCreditNeverOverruns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t, 12, 16)
		w := drawWorld(t, len(s.Counts))
		w.slow, w.deaf, w.tick = rapid.IntRange(0, len(s.Counts)-1).Draw(t, "slow"), rapid.Bool().Draw(t, "deaf"), 400
		net, cfg := drawNetwork(t), drawConfig(t)
		net.reorder, net.duplicate, cfg.Flow = 0, 0, FlowCredit
		c := w.open(oneRound(t, s), newMemory(w.rng, s.Counts), net, cfg)
		c.room = int(w.hosts[0].pool.size)
		w.run(c)
		w.empty()
	})
}

// Several operations at once share what a process has: its room for datagrams
// and what it knows about the network. Each must end, however little it is lent.
func TestClusterManyAtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(2, 6).Draw(t, "P")
		w := drawWorld(t, size)
		var cs []*cluster
		for seq := range rapid.IntRange(2, 8).Draw(t, "operations") {
			m, chunks := rapid.IntRange(1, size).Draw(t, "M"), rapid.Int64Range(0, 12)
			s := allgather(size, 0, 4, m, rapid.IntRange(1, 3).Draw(t, "S"))
			for r := range s.Counts {
				s.Counts[r] = 4*chunks.Draw(t, "chunks") + 1
			}
			cfg := drawConfig(t)
			cfg.Seq, cfg.Flow = uint64(seq), FlowCredit
			net := network{loss: rapid.SampledFrom([]float64{0, 0.05}).Draw(t, "loss")}
			cs = append(cs, w.open(oneRound(t, s), newMemory(w.rng, s.Counts), net, cfg))
		}
		w.run(cs...)
		w.empty()
	})
}
