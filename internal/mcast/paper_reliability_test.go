package mcast

import (
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

func TestPaperSectionIIIC(t *testing.T) {
	t.Run("RNR: the root sends when all have posted their receives", func(t *testing.T) {
		o := New(Config{Geometry: oneRound(t, broadcast(4, 0, 8, 8, 1)), Est: NewEstimator(Limits{})})
		acts := o.Step(1, step.Event{Kind: step.EvStart}, nil)
		acts = append(acts, hear(o, 1, wire.Msg{Kind: wire.MsgBarrier, Round: 1, Digest: o.g.Digest()})...)
		if slices.ContainsFunc(acts, func(a step.Action) bool { return a.Kind == step.ActMulticast }) {
			t.Errorf("two of four have entered and it sends: %+v", acts)
		}
		acts = hear(o, 2, wire.Msg{Kind: wire.MsgBarrier, Round: 2, Digest: o.g.Digest()})
		if !slices.ContainsFunc(acts, func(a step.Action) bool { return a.Kind == step.ActMulticast }) {
			t.Errorf("all have entered and it does not send: %+v", acts)
		}
	})
	t.Run("the cutoff is N/B + alpha", func(t *testing.T) {
		// 1000 chunks of 1000 bytes at 1 byte/ns, all missing: 1 ms, and alpha.
		o := New(Config{
			Geometry: oneRound(t, broadcast(2, 0, 1_000_000, 1000, 1)), Rank: 1,
			Est: NewEstimator(Limits{
				LinkRate: 1, Alpha: 70 * step.Microsecond, MinAlpha: 70 * step.Microsecond, MaxAlpha: step.Second,
			}),
		})
		o.Step(0, step.Event{Kind: step.EvStart}, nil)
		o.Step(5000, step.Event{Kind: step.EvMsg, Msg: &wire.Msg{Kind: wire.MsgBarrier, Round: 1, Digest: o.g.Digest()}}, nil)
		if got, want := o.Timer(), 5000+step.Millisecond+70*step.Microsecond; got != want {
			t.Errorf("cutoff at %d, want %d", got, want)
		}
	})
	t.Run("the fetch request goes to the left neighbour", func(t *testing.T) {
		o := paperOp(t, broadcast(6, 0, 24, 8, 1), 3)
		o.Chunk(1, 0, 2, 8, nil)
		acts := o.Step(o.Timer(), step.Event{Kind: step.EvTimer}, nil)
		if len(acts) != 1 || acts[0].To != 2 || acts[0].Msg.Kind != wire.MsgFetch || !slices.Equal(acts[0].Msg.Ranges,
			[]wire.Range{{PSN: 0, N: 2}}) {
			t.Errorf("%+v", acts)
		}
	})
	t.Run("after the answer the chunks are read selectively", func(t *testing.T) {
		o := paperOp(t, broadcast(6, 0, 80, 8, 1), 3)
		for _, psn := range []uint32{0, 1, 3, 4, 5, 8, 9} {
			o.Chunk(1, 0, psn, 8, nil)
		}
		o.Step(o.Timer(), step.Event{Kind: step.EvTimer}, nil)
		got, n := reads(hear(o, 2, wire.Msg{Kind: wire.MsgAvail, Ranges: []wire.Range{{PSN: 0, N: 10}}}))
		if want := []wire.Range{{PSN: 2, N: 1}, {PSN: 6, N: 2}}; n != 1 || !slices.Equal(got, want) {
			t.Errorf("%d reads of %v, want one of %v", n, got, want)
		}
	})
	t.Run("recursion ends at the Broadcast root", func(t *testing.T) {
		// Everybody but the root misses everything: 1 reads from 0, 2 from 1, and so on.
		c := scripted(t, broadcast(6, 0, 100, 8, 1), Config{}, allLost)
		for psn, n := range c.reads[0] {
			if n != 1 {
				t.Errorf("chunk %d left the root %d times", psn, n)
			}
		}
	})
	t.Run("the worst case is the ring Allgather", func(t *testing.T) {
		c := scripted(t, allgather(6, 40, 8, 2, 1), Config{}, allLost)
		for _, m := range c.ranks {
			if got := m.op.Stats().Repaired; got != 25 {
				t.Errorf("rank %d read %d chunks, want 5 from each of 5", m.rank, got)
			}
		}
	})
	t.Run("final handshake: to the left when all is here, from the right before returning", func(t *testing.T) {
		o := paperOp(t, broadcast(3, 0, 8, 8, 1), 1)
		_, _, acts := o.Chunk(1, 0, 0, 8, nil)
		if len(acts) != 1 || acts[0].To != 0 || acts[0].Msg.Kind != wire.MsgFinal {
			t.Errorf("all is here: %+v", acts)
		}
		if acts = hear(o, 0, wire.Msg{Kind: wire.MsgFinal}); len(acts) != 0 {
			t.Errorf("a final packet from the left: %+v", acts)
		}
		if acts = hear(o, 2, wire.Msg{Kind: wire.MsgFinal}); len(acts) == 0 || acts[0].Kind != step.ActComplete {
			t.Errorf("a final packet from the right: %+v", acts)
		}
	})
}

func TestPaperSectionIV(t *testing.T) {
	t.Run("one process of a chain multicasts after the other", func(t *testing.T) {
		o := paperOp(t, allgather(4, 16, 8, 1, 1), 1)
		if acts := o.Step(1, step.Event{Kind: step.EvTimer}, nil); len(acts) != 0 {
			t.Errorf("before its turn: %+v", acts)
		}
		acts := hear(o, 0, wire.Msg{Kind: wire.MsgChainSent})
		if len(acts) != 1 || acts[0].Kind != step.ActMulticast || acts[0].N != 2 {
			t.Errorf("its turn: %+v", acts)
		}
		acts = o.Step(1, step.Event{Kind: step.EvSent, N: 2}, nil)
		if len(acts) == 0 || acts[0].To != 2 || acts[0].Msg.Kind != wire.MsgChainSent {
			t.Errorf("it has finished: %+v", acts)
		}
	})
	t.Run("chains run in parallel", func(t *testing.T) {
		g := oneRound(t, allgather(12, 8, 8, 4, 1))
		for rank := range 12 {
			if pred, _ := g.neighbours(rank); (pred < 0) != slices.Contains([]int{0, 3, 6, 9}, rank) {
				t.Errorf("rank %d: after %d", rank, pred)
			}
		}
	})
	t.Run("16 processes, 4 subgroups, 8 MiB: 2 MiB each to send, 30 MiB to receive", func(t *testing.T) {
		g := oneRound(t, allgather(16, 8<<20, 4096, 1, 4))
		for sub := range 4 {
			psn, n := g.Block(sub, 3)
			if _, length := g.Span(sub, psn, n); length != 2<<20 {
				t.Errorf("subgroup %d carries %d bytes of rank 3", sub, length)
			}
			if received := int64(g.PSNs(sub)-n) * 4096; received != 30<<20 {
				t.Errorf("subgroup %d: rank 3 receives %d bytes", sub, received)
			}
		}
	})
	t.Run("each subgroup has a bitmap of its own", func(t *testing.T) {
		o := paperOp(t, allgather(4, 80, 8, 1, 3), 0)
		for sub := range o.arrived {
			if o.arrived[sub].Len() != o.g.PSNs(sub) || o.arrived[sub].Stream != sub {
				t.Errorf("subgroup %d: %d bits for %d PSNs", sub, o.arrived[sub].Len(), o.g.PSNs(sub))
			}
		}
	})
}

// C6: for M dividing P, with R = P/M, the active group at step i is {P_i, P_(R+i),
// ..., P_((M-1)R+i)}.
func TestPaperAppendixA(t *testing.T) {
	for p := 1; p <= 48; p++ {
		for m := 1; m <= p; m++ {
			if p%m != 0 {
				continue
			}
			g := oneRound(t, allgather(p, 8, 8, m, 1))
			steps := p / m
			if stepsOf(g) != steps || g.Chains() != m {
				t.Fatalf("P=%d, M=%d: %d steps of %d chains", p, m, stepsOf(g), g.Chains())
			}
			for i := range steps {
				var want []int
				for k := range m {
					want = append(want, k*steps+i)
				}
				if got := activeGroup(g, i); !slices.Equal(got, want) {
					t.Fatalf("P=%d, M=%d, step %d: %v, want %v", p, m, i, got, want)
				}
			}
		}
	}
}
