package p2p_test

import (
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/p2p"
)

// Pieces that are to be added wait for their turn, so that sums are made in the plan's
// order: given backwards, all of them are held but the first, and then applied in
// order. Pieces that are only to be put in place do not wait.
func TestHeldUntilItsTurn(t *testing.T) {
	everyAlgorithm(t, func(x subject) {
		t, kind, algo := x.T, x.kind, x.algo
		c := call{algo, p2p.Spec{Kind: kind, Size: 11, Segment: 3}}.sized(8)
		for rank := range c.Size {
			s := newSolo(c.plan(t, rank))
			s.start()
			s.acts = nil
			nth := numbers(s.plan)
			var want []int
			for i := len(s.plan.Recvs) - 1; i >= 0; i-- {
				r := s.plan.Recvs[i]
				s.takes(t, int(r.From), nth[i], r, r.Reduce && i > 0)
				s.refuses(t, "a duplicate", int(r.From), nth[i], r.Len)
			}
			for i, r := range s.plan.Recvs {
				if r.Reduce && i > 0 {
					want = append(want, i)
				}
			}
			if !slices.Equal(s.applied, want) || s.Missing(nil) != "nothing" {
				t.Fatalf("%v: rank %d applies %v, want %v; it misses %s", c, rank, s.applied, want, s.Missing(nil))
			}
		}
	})
}

// numbers says of each receive which it is of those from the same rank.
func numbers(p *p2p.Plan) []uint32 {
	nth, next := make([]uint32, len(p.Recvs)), map[int32]uint32{}
	for i, r := range p.Recvs {
		nth[i] = next[r.From]
		next[r.From]++
	}
	return nth
}
