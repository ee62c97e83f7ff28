package p2p_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

// matched pairs the sends of all ranks with the receives of all ranks.
type matched struct {
	plans  []*p2p.Plan
	sender [][]sendID // by rank and receive: the matching send
	nth    [][]int    // by rank and send: its number among those to the same peer
}

type sendID struct{ rank, i int }

// match fails if the n-th send of a to b is not the n-th receive of b from a.
func match(plans []*p2p.Plan) (*matched, error) {
	m := &matched{plans: plans}
	size := len(plans)
	sends := make([][]int, size*size)
	for a, p := range plans {
		nth := make([]int, len(p.Sends))
		for i, s := range p.Sends {
			if s.To < 0 || int(s.To) >= size || int(s.To) == a {
				return nil, fmt.Errorf("rank %d sends to %d", a, s.To)
			}
			pair := a*size + int(s.To)
			nth[i] = len(sends[pair])
			sends[pair] = append(sends[pair], i)
		}
		m.nth = append(m.nth, nth)
	}
	for b, p := range plans {
		from := make([]sendID, len(p.Recvs))
		for j, r := range p.Recvs {
			if r.From < 0 || int(r.From) >= size || int(r.From) == b {
				return nil, fmt.Errorf("rank %d receives from %d", b, r.From)
			}
			pair := int(r.From)*size + b
			if len(sends[pair]) == 0 {
				return nil, fmt.Errorf("rank %d receives %+v, which no rank sends", b, r)
			}
			i := sends[pair][0]
			sends[pair] = sends[pair][1:]
			moved := relocates(plans[b]) || relocates(plans[r.From])
			if s := plans[r.From].Sends[i]; s.Off != r.Off && !moved || s.Len != r.Len {
				return nil, fmt.Errorf("rank %d sends %+v, rank %d receives %+v", r.From, s, b, r)
			}
			from[j] = sendID{int(r.From), i}
		}
		m.sender = append(m.sender, from)
	}
	for pair, left := range sends {
		if len(left) > 0 {
			return nil, fmt.Errorf("%d sends of rank %d to rank %d are not received", len(left), pair/size, pair%size)
		}
	}
	return m, nil
}

// waits is the number of receives that each send waits for. Sends go in order, so that a send also waits
// for the receives of the sends before it.
func waits(p *p2p.Plan) []int {
	w, most := make([]int, len(p.Sends)), 0
	for i, s := range p.Sends {
		most = max(most, int(s.After))
		w[i] = most
	}
	return w
}

// relocates reports whether a range may have different offsets on two ranks.
func relocates(p *p2p.Plan) bool {
	return p.Input > 0 || p.Scratch > 0 || clustertest.Exchanges(p.Kind)
}

func TestPlansMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCall(t, 40)
		plans := make([]*p2p.Plan, c.Size)
		for r := range plans {
			plans[r] = planOf(t, c, r)
			checkRanges(t, c, plans[r])
		}
		if _, err := match(plans); err != nil {
			t.Fatalf("%v: %v", c, err)
		}
	})
}

func planOf(t *rapid.T, c call, rank int) *p2p.Plan {
	p, err := p2p.New(c.algo, c.specOf(rank))
	if err != nil {
		t.Fatalf("%v: %v", c, err)
	}
	return p
}

// checkRanges checks the plan of one rank by itself.
func checkRanges(t *rapid.T, c call, p *p2p.Plan) {
	if p.Kind != c.Kind || p.Algo != c.algo || p.Size != c.Size ||
		!c.Kind.Private() && p.Bytes != c.reference(0).Total() {
		t.Fatalf("%v: rank %d: the plan is for %v/%s, %d ranks, %d bytes", c, p.Rank, p.Kind, p.Algo, p.Size, p.Bytes)
	}
	size := p.Input + p.Output + p.Scratch
	for _, m := range slices.Concat(p.Before, p.After) {
		if m.Len <= 0 || min(m.From, m.To) < 0 || max(m.From, m.To)+m.Len > size {
			t.Fatalf("%v: rank %d: %+v is outside of the buffer of %d bytes", c, p.Rank, m, size)
		}
	}
	for _, s := range p.Sends {
		if s.After < 0 || int(s.After) > len(p.Recvs) {
			t.Fatalf("%v: rank %d: %+v waits for more than the %d receives there are", c, p.Rank, s, len(p.Recvs))
		}
		parts := s.Parts
		if parts == nil {
			parts = []wire.Span{{Off: s.Off, Len: s.Len}}
		}
		var n int64
		for _, part := range parts {
			if n += part.Len; part.Off < 0 || part.Len < 0 || part.Off+part.Len > size {
				t.Fatalf("%v: rank %d: %+v is outside of the buffer of %d bytes", c, p.Rank, s, size)
			}
		}
		if n != s.Len {
			t.Fatalf("%v: rank %d: %+v has parts of %d bytes", c, p.Rank, s, n)
		}
	}
	for _, r := range p.Recvs {
		if r.Off < p.Input || r.Len < 0 || r.Off+r.Len > size {
			t.Fatalf("%v: rank %d: %+v is outside of the receive buffer and the scratch memory", c, p.Rank, r)
		}
		if r.Reduce && !c.Kind.Reduces() {
			t.Fatalf("%v: rank %d: %+v reduces", c, p.Rank, r)
		}
	}
}
