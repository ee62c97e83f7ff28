package p2p_test

import (
	"testing"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/protocol"
)

// What is to be added waits for its turn, so that sums are made in the plan's
// order: given backwards, all of it is held but the first, and then applied in
// order. What is only to be put in place does not wait.
func TestHeldUntilItsTurn(t *testing.T) {
	everyAlgorithm(t, func(x subject) {
		t, kind, algo := x.T, x.kind, x.algo
		c := call{algo, p2p.Spec{Kind: kind, Size: 11, Segment: 3}}.sized(8)
		for rank := range c.Size {
			s := newSolo(c.plan(t, rank))
			s.start()
			s.acts = nil
			nth := numbers(s.plan)
			var want []protocol.Action
			for i := len(s.plan.Recvs) - 1; i >= 0; i-- {
				r := s.plan.Recvs[i]
				r.Hold = r.Reduce && i > 0
				s.takes(t, int(r.From), nth[i], r)
				s.refuses(t, "a duplicate", int(r.From), nth[i], r.Len)
			}
			for i, r := range s.plan.Recvs {
				if r.Reduce && i > 0 {
					want = append(want, protocol.Action{Kind: protocol.ActApply, To: int(r.From), PSN: nth[i], Off: r.Off, Len: r.Len})
				}
			}
			if n := s.count(protocol.ActApply); n != len(want) || s.Missing() != "nothing" {
				t.Fatalf("%v: rank %d applies %d pieces, want %d; it misses %s", c, rank, n, len(want), s.Missing())
			}
			for i, w := range want {
				if a := s.acts[i]; a.Kind != w.Kind || a.To != w.To || a.PSN != w.PSN || a.Off != w.Off || a.Len != w.Len {
					t.Fatalf("%v: rank %d first does %+v, want %+v", c, rank, a, w)
				}
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
