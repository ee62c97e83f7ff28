package mcast

import (
	"fmt"
	"testing"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Mistakes in the code of the authors of the paper (docs/claims.md), which ours must not have.
func TestAuthorsMistakes(t *testing.T) {
	t.Run("1: a loss that is not the tail, with a short last chunk", func(t *testing.T) {
		for lost := range uint32(4) {
			c := scripted(t, allgather(3, 3*16+5, 16, 1, 1), Config{}, func(to, _ int, psn uint32) bool {
				return to == 2 && psn == 4+lost // the block of rank 1 begins at PSN 4
			})
			if got := c.ranks[2].op.Stats().Repaired; got != 1 { // scripted checks every byte
				t.Errorf("chunk %d: repaired %d", lost, got)
			}
		}
	})
	t.Run("2: duplicates change nothing", func(t *testing.T) {
		o := paperOp(t, broadcast(2, 0, 24, 8, 1), 1)
		hear(o, 0, wire.Msg{Kind: wire.MsgFinal})
		duplicates := 0
		for range 10 {
			for psn := range uint32(2) {
				_, v, acts := o.Chunk(1, 0, psn, 8, nil)
				if len(acts) > 0 {
					t.Fatalf("one chunk is missing: %+v", acts)
				}
				if v == Duplicate {
					duplicates++
				}
			}
		}
		if o.count.missing != 1 || duplicates != 18 {
			t.Errorf("%d missing, %d duplicates", o.count.missing, duplicates)
		}
	})
	t.Run("3: the cutoff is armed when the barrier ends, with alpha", func(t *testing.T) {
		o := New(Config{
			Geometry: oneRound(t, broadcast(2, 0, 1, 1, 1)), Rank: 1,
			Est: NewEstimator(Limits{
				LinkRate: 25, Alpha: 10 * step.Microsecond, MinAlpha: 10 * step.Microsecond, MaxAlpha: step.Second,
			}),
		})
		o.Step(0, step.Event{Kind: step.EvStart}, nil)
		if o.Timer() != step.Never {
			t.Errorf("armed in the barrier, for %d", o.Timer())
		}
		late := 10 * step.Second // the root is in no hurry
		o.Step(late, step.Event{Kind: step.EvMsg, Msg: &wire.Msg{Kind: wire.MsgBarrier, Round: 1, Digest: o.g.Digest()}}, nil)
		if got := o.Timer(); got < late+10*step.Microsecond {
			t.Errorf("one byte, sent at %d, is given up at %d", late, got)
		}
	})
	t.Run("3: a chunk that was not announced is not fetched, however late", func(t *testing.T) {
		o := paperOp(t, broadcast(2, 0, 16, 8, 1), 1)
		for range 30 {
			if acts := o.Step(o.Timer(), step.Event{Kind: step.EvTimer}, nil); len(acts) > 0 {
				t.Fatalf("%+v", acts)
			}
		}
		if o.Phase() != step.Multicast {
			t.Errorf("phase %v", o.Phase())
		}
	})
	t.Run("4: M that does not divide P", func(t *testing.T) {
		for p := 1; p <= 40; p++ {
			for m := 1; m <= p; m++ {
				g := oneRound(t, allgather(p, 8, 8, m, 1))
				if g.Chains() != m || stepsOf(g) != (p+m-1)/m {
					t.Errorf("P=%d, M=%d: %d chains, %d steps", p, m, g.Chains(), stepsOf(g))
				}
			}
		}
	})
	t.Run("5: several subgroups", func(t *testing.T) {
		for s := 1; s <= 8; s++ {
			c := scripted(t, allgather(5, 203, 8, 2, s), Config{}, func(to, sub int,
				psn uint32,
			) bool {
				return (to+sub+int(psn))%7 == 0
			})
			if c.g.Subgroups() != s {
				t.Errorf("%d subgroups, want %d", c.g.Subgroups(), s)
			}
		}
	})
	t.Run("11: odd sizes", func(t *testing.T) {
		for _, bytes := range []int64{0, 1, 2, 7, 8, 9, 15, 16, 17, 4095, 4097} {
			for _, s := range []Shape{allgather(3, bytes, 8, 2, 2), broadcast(3, 1, bytes, 8, 2)} {
				t.Run(fmt.Sprintf("%v of %d bytes", s.Kind, bytes), func(t *testing.T) {
					scripted(t, s, Config{}, func(to, _ int, psn uint32) bool { return (to+int(psn))%5 == 0 })
				})
			}
		}
	})
	t.Run("11: what does not fit the immediate runs in rounds", func(t *testing.T) {
		s := broadcast(3, 0, 1000, 1, 1)
		if plan := mustPlan(t, s, mustLayout(t, 6)); len(plan) != 16 {
			t.Errorf("1000 chunks, 64 PSNs: %d rounds", len(plan))
		}
	})
}
