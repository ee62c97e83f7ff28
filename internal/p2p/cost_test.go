package p2p_test

import (
	"math/bits"
	"testing"

	"github.com/allcast/allcast/internal/p2p"
)

// sent is what the busiest rank sends, and what all do.
func sent(plans []*p2p.Plan) (busiest, all int64) {
	for _, p := range plans {
		var n int64
		for _, s := range p.Sends {
			n += s.Len
		}
		busiest, all = max(busiest, n), all+n
	}
	return busiest, all
}

// What the busiest rank sends of a buffer, or a block, of n bytes.
func TestBytesOfTheBusiestRank(t *testing.T) {
	const n = 840 // the halves, thirds, ... of it are whole
	for _, c := range []struct {
		kind p2p.Kind
		algo string
		want func(p int64) int64 // -1: no claim for this P
	}{
		{p2p.Allgather, "ring", func(p int64) int64 { return (p - 1) * n }},
		{p2p.Allgather, "linear", func(p int64) int64 { return (p - 1) * n }},
		{p2p.Allgather, "bruck", func(p int64) int64 { return (p - 1) * n }},
		{p2p.Allgather, "recursive-doubling", onlyPowers(func(p int64) int64 { return (p - 1) * n })},
		{p2p.ReduceScatter, "ring", func(p int64) int64 { return (p - 1) * n }},
		{p2p.ReduceScatter, "recursive-halving", onlyPowers(func(p int64) int64 { return (p - 1) * n })},
		{p2p.Allgather, "pat", func(p int64) int64 { return (p - 1) * n }},
		{p2p.ReduceScatter, "pat", func(p int64) int64 { return (p - 1) * n }},
		{p2p.Alltoall, "pairwise", func(p int64) int64 { return (p - 1) * n }},
		{p2p.Alltoallv, "pairwise", func(p int64) int64 { return (p - 1) * n }},
		{p2p.Alltoall, "bruck", func(p int64) int64 { return bitsBelow(p) * n }},
		{p2p.Gather, "linear", func(p int64) int64 { return min(p-1, 1) * n }},
		{p2p.Gatherv, "linear", func(p int64) int64 { return min(p-1, 1) * n }},
		{p2p.Gather, "binomial", func(p int64) int64 { return largestSubtree(p) * n }},
		{p2p.Scatter, "linear", func(p int64) int64 { return (p - 1) * n }},
		{p2p.Scatterv, "linear", func(p int64) int64 { return (p - 1) * n }},
		{p2p.Scatter, "binomial", func(p int64) int64 { return (p - 1) * n }},
		{p2p.Reduce, "binomial", func(p int64) int64 { return min(p-1, 1) * n }},
		{p2p.Reduce, "chain", func(p int64) int64 { return min(p-1, 1) * n }},
		{p2p.Reduce, "ring", func(p int64) int64 { return min(p-1, 1) * n }},
		{p2p.Broadcast, "binomial", func(p int64) int64 { return int64(bits.Len64(uint64(p-1))) * n }},
		{p2p.Broadcast, "knomial", func(p int64) int64 { return knomialChildren(p, 4) * n }},
		{p2p.Broadcast, "binary", func(p int64) int64 { return min(p-1, 2) * n }},
		{p2p.Broadcast, "chain", func(p int64) int64 { return min(p-1, 1) * n }},
	} {
		for size := 1; size <= 40; size++ {
			call := call{c.algo, p2p.Spec{Kind: c.kind, Size: size, Root: size / 2}}.sized(n)
			busiest, _ := sent(call.plans(t))
			if want := c.want(int64(size)); want >= 0 && busiest != want {
				t.Errorf("%v: the busiest rank sends %d bytes, want %d", call, busiest, want)
			}
		}
	}
}

func onlyPowers(f func(int64) int64) func(int64) int64 {
	return func(p int64) int64 {
		if p&(p-1) != 0 {
			return -1
		}
		return f(p)
	}
}

// knomialChildren counts the root's: a digit base k, one of the values 1..k-1.
func knomialChildren(p, k int64) (n int64) {
	for level := int64(1); level < p; level *= k {
		n += min(k-1, (p-1)/level)
	}
	return n
}

// bitsBelow counts the one bits of all numbers below p: the steps that the blocks of a Bruck Alltoall move.
func bitsBelow(p int64) (n int64) {
	for i := range p {
		n += int64(bits.OnesCount64(uint64(i)))
	}
	return n
}

// largestSubtree is the size of the largest subtree below the root of a binomial tree.
func largestSubtree(p int64) (most int64) {
	for d := int64(1); d < p; d *= 2 {
		most = max(most, min(d, p-d))
	}
	return most
}

// The largest number of messages that a rank sends, or that a root sends or receives, if blocks are small.
func TestMessages(t *testing.T) {
	logarithm := func(p int) int { return bits.Len(uint(p - 1)) }
	all := func(p int) int { return p - 1 }
	busiest := func(plans []*p2p.Plan) (n int) {
		for _, p := range plans {
			n = max(n, len(p.Sends))
		}
		return n
	}
	fromRoot := func(plans []*p2p.Plan) int { return len(plans[0].Sends) }
	toRoot := func(plans []*p2p.Plan) int { return len(plans[0].Recvs) }
	for _, x := range []struct {
		kind  p2p.Kind
		algo  string
		count func([]*p2p.Plan) int
		want  func(p int) int
	}{
		{p2p.Alltoall, "bruck", busiest, logarithm},
		{p2p.Allgather, "pat", busiest, logarithm},
		{p2p.Alltoall, "pairwise", busiest, all},
		{p2p.Gather, "binomial", toRoot, logarithm},
		{p2p.Gather, "linear", toRoot, all},
		{p2p.Scatter, "binomial", fromRoot, logarithm},
		{p2p.Scatter, "linear", fromRoot, all},
		{p2p.Reduce, "binomial", toRoot, logarithm},
		{p2p.Reduce, "chain", toRoot, func(p int) int { return min(p-1, 1) }},
	} {
		for size := 1; size <= 40; size++ {
			c := call{x.algo, p2p.Spec{Kind: x.kind, Size: size}}.sized(8)
			if got := x.count(c.plans(t)); got != x.want(size) {
				t.Errorf("%v: %d messages, want %d", c, got, x.want(size))
			}
		}
	}
}

// Only some plans need scratch memory: those whose blocks pass through other ranks, or travel packed.
func TestScratch(t *testing.T) {
	const n = 1 << 20
	for _, kind := range kinds {
		for _, algo := range p2p.Algorithms(kind) {
			c := call{algo, p2p.Spec{Kind: kind, Size: 13}}.sized(n)
			for _, p := range c.plans(t) {
				most := int64(0)
				switch {
				case kind == p2p.Alltoall && algo == "bruck":
					most = bitsBelow(13) * n
				case kind == p2p.Allreduce && algo == "recursive-doubling":
					most = int64(bits.Len(13-1)) * n // one sum per partner
				case (kind == p2p.Gather || kind == p2p.Scatter) && algo == "binomial" && p.Rank != p.Root:
					most = largestSubtree(13) * n
				}
				if p.Scratch > most {
					t.Errorf("%v: rank %d uses %d bytes of scratch memory, want at most %d", c, p.Rank, p.Scratch, most)
				}
			}
		}
	}
}

// Van de Geijn's Broadcast and the Allreduces send twice all but the own block,
// up to how the buffer is cut.
func TestBytesOfScatterAndGather(t *testing.T) {
	for _, c := range []struct {
		kind p2p.Kind
		algo string
	}{{p2p.Broadcast, "scatter-allgather"}, {p2p.Allreduce, "ring"}, {p2p.Allreduce, "recursive-halving"}} {
		for size := 2; size <= 40; size++ {
			if c.algo == "recursive-halving" && size&(size-1) != 0 {
				continue // folded ranks send everything
			}
			const n = 1 << 20
			call := call{c.algo, p2p.Spec{Kind: c.kind, Size: size}}.sized(n)
			busiest, _ := sent(call.plans(t))
			if want := int64(2 * n * (size - 1) / size); busiest < want-2*n/1000 || busiest > want+2*n/1000 {
				t.Errorf("%v: the busiest rank sends %d bytes, want about %d", call, busiest, want)
			}
		}
	}
}

// Trees send each byte to each rank once, and nothing else.
func TestBytesOfTrees(t *testing.T) {
	for _, algo := range []string{"binomial", "knomial", "binary", "chain"} {
		for radix := 2; radix <= 5; radix++ {
			for size := 1; size <= 40; size++ {
				c := call{algo, p2p.Spec{Kind: p2p.Broadcast, Size: size, Root: size - 1, Bytes: 100, Segment: 30, Radix: radix}}
				plans := c.plans(t)
				if _, all := sent(plans); all != int64(size-1)*100 {
					t.Errorf("%v: %d bytes in all, want %d", c, all, (size-1)*100)
				}
				if len(plans[c.Root].Recvs) > 0 {
					t.Errorf("%v: the root receives", c)
				}
			}
		}
	}
}

// Who must not send everything at once does not: chain and binary are pipelined
// by default, segments bound what is sent and begin where elements do.
func TestSegments(t *testing.T) {
	for _, c := range []struct {
		kind    p2p.Kind
		algo    string
		segment int64
		align   int64
		most    int64
	}{
		{p2p.Broadcast, "chain", 0, 1, 64 << 10},
		{p2p.Broadcast, "binary", 0, 1, 64 << 10},
		{p2p.Broadcast, "chain", 1000, 8, 1000},
		{p2p.Broadcast, "binomial", 1001, 8, 1000},
		{p2p.Broadcast, "scatter-allgather", 1000, 8, 1000},
		{p2p.Allgather, "ring", 3, 8, 8}, // never less than an element
		{p2p.Allgather, "bruck", 1000, 8, 1000},
		{p2p.Allgather, "recursive-doubling", 1000, 8, 1000},
		{p2p.ReduceScatter, "recursive-halving", 1000, 8, 1000},
		{p2p.Allreduce, "ring", 1000, 8, 1000},
		{p2p.Allreduce, "recursive-halving", 1003, 8, 1000},
		{p2p.Reduce, "chain", 0, 1, 64 << 10},
		{p2p.Reduce, "binomial", 1001, 8, 1000},
		{p2p.Reduce, "ring", 1000, 8, 1000},
		{p2p.Alltoall, "pairwise", 1000, 8, 1000},
		{p2p.Gather, "linear", 1000, 8, 1000},
		{p2p.Scatter, "linear", 1000, 8, 1000},
		{p2p.ReduceScatter, "pat", 1000, 8, 1000},
	} {
		call := call{c.algo, p2p.Spec{Kind: c.kind, Size: 11, Segment: c.segment, Align: c.align}}.sized(300_000)
		if c.kind.Blocks() {
			call = call.sized(8000)
		}
		for _, p := range call.plans(t) {
			for _, s := range p.Sends {
				if s.Len > c.most || s.Off%c.align != 0 {
					t.Fatalf("%v: rank %d sends %+v, want at most %d bytes at a multiple of %d", call, p.Rank, s, c.most, c.align)
				}
			}
		}
	}
}
