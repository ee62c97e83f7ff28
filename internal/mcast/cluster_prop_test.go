package mcast

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/step"
)

// drawWorld draws processes and the delays between them.
func drawWorld(t *rapid.T, size int) *world {
	limits := Limits{
		LinkRate: rapid.SampledFrom([]float64{0, 0.1, 7}).Draw(t, "link rate"),
		Alpha:    step.Time(rapid.SampledFrom([]int64{1, 20, 1000}).Draw(t, "alpha")) * step.Microsecond,
		MinAlpha: 1 * step.Microsecond, MaxAlpha: step.Millisecond,
	}
	w := newWorld(t, rapid.Uint64().Draw(t, "seed"), size, limits, rapid.Uint64Range(1, 64).Draw(t, "room"))
	w.tick = step.Time(rapid.SampledFrom([]int64{0, 100, 2000}).Draw(t, "tick"))
	if rapid.IntRange(0, 3).Draw(t, "a rank is slow") == 0 {
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
	return network{Faults: clustertest.Faults{
		Loss: p.Draw(t, "loss"), Reorder: p.Draw(t, "reorder"),
		Duplicate: rapid.SampledFrom([]float64{0, 0.01, 0.3}).Draw(t, "duplicate"),
	}}
}

// Any collective on any network ends with the right bytes, and everything in cluster_check_test.go
// holds on the way.
func TestClusterDelivers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t, 40, 6)
		w := drawWorld(t, len(s.Counts))
		net, cfg := drawNetwork(t), drawConfig(t)
		w.open(s, net, cfg)
		w.run()
		w.empty()
	})
}

// Without loss and with patience, no rank fetches: multicast and the final handshake suffice (Section
// III-C), with duplicates and reordering too.
func TestClusterFetchesNothingWithoutLoss(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t, 24, 6)
		w := drawWorld(t, len(s.Counts))
		w.calm()
		net, cfg := drawNetwork(t), drawConfig(t)
		net.Loss = 0
		c := w.open(s, net, cfg)
		w.run()
		for _, m := range c.ranks {
			if st := m.op.Stats(); st.Repaired != 0 || st.Late != 0 || m.op.Times().Fetch != 0 {
				t.Fatalf("rank %d: %+v, fetch at %d", m.rank, st, m.op.Times().Fetch)
			}
		}
	})
}

// The rounds of a long call run one after the other and share its buffers.
func TestClusterRounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t, 12, 12)
		plan := mustPlan(t, s, mustLayout(t, rapid.IntRange(4, 5).Draw(t, "PSN bits")))
		w := drawWorld(t, len(s.Counts))
		net, cfg, mem := drawNetwork(t), drawConfig(t), w.memory(s)
		for _, g := range plan {
			mem.open(g, net, cfg)
			w.run()
			cfg.Seq++
		}
		for r := range s.Counts {
			if err := mem.Check(r, mem.recv[r]); err != nil {
				t.Fatalf("after %d rounds: %v", len(plan), err)
			}
		}
		w.empty()
	})
}

// On a network that keeps the order, credit keeps every receive queue within its room, with any loss
// and a slow rank. Marks overtake datagrams; a rank with datagrams waiting takes one within alpha (see
// keepUp).
func TestClusterCreditNeverOverruns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for range 4 { // an overrun is rare, and a case is cheap
			s := drawShape(t, 12, 16)
			w := drawWorld(t, len(s.Counts))
			w.slow, w.deaf, w.tick = rapid.IntRange(0, len(s.Counts)-1).Draw(t, "slow"), rapid.Bool().Draw(t, "deaf"), 400
			net, cfg := drawNetwork(t), drawConfig(t)
			net.Reorder, net.Duplicate, cfg.Flow = 0, 0, FlowCredit
			w.open(s, net, cfg).room = int(w.hosts[0].pool.size)
			w.run()
			w.empty()
		}
	})
}

// Collectives that run at once share the room for datagrams and the estimates of their process. Each
// must end, however little room it is lent.
func TestClusterManyAtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(2, 6).Draw(t, "P")
		w := drawWorld(t, size)
		for seq := range rapid.IntRange(2, 8).Draw(t, "operations") {
			m, chunks := rapid.IntRange(1, size).Draw(t, "M"), rapid.Int64Range(0, 12)
			s := allgather(size, 0, 4, m, rapid.IntRange(1, 3).Draw(t, "S"))
			for r := range s.Counts {
				s.Counts[r] = 4*chunks.Draw(t, "chunks") + 1
			}
			cfg := drawConfig(t)
			cfg.Seq, cfg.Flow = uint64(seq), FlowCredit
			loss := rapid.SampledFrom([]float64{0, 0.05}).Draw(t, "loss")
			w.open(s, network{Faults: clustertest.Faults{Loss: loss}}, cfg)
		}
		w.run()
		w.empty()
	})
}
