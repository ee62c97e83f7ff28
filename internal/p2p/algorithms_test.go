package p2p_test

import (
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/p2p"
)

// The algorithms that users know by name.
func TestAlgorithms(t *testing.T) {
	for kind, want := range map[p2p.Kind][]string{
		p2p.Broadcast:     {"binary", "binomial", "chain", "knomial", "scatter-allgather"},
		p2p.Allgather:     {"bruck", "linear", "pat", "recursive-doubling", "ring"},
		p2p.ReduceScatter: {"pat", "recursive-halving", "ring"},
		p2p.Allreduce:     {"recursive-doubling", "recursive-halving", "ring"},
		p2p.Barrier:       {"dissemination", "recursive-doubling"},
		p2p.Gather:        {"binomial", "linear"},
		p2p.Gatherv:       {"linear"},
		p2p.Scatter:       {"binomial", "linear"},
		p2p.Scatterv:      {"linear"},
		p2p.Reduce:        {"binomial", "chain", "ring"},
		p2p.Alltoall:      {"bruck", "pairwise"},
		p2p.Alltoallv:     {"pairwise"},
		0:                 nil,
	} {
		if got := p2p.Algorithms(kind); !slices.Equal(got, want) {
			t.Errorf("%v: %v, want %v", kind, got, want)
		}
	}
}

// Every algorithm gives the result of the reference, for P = 1..40 and sizes 0, 1, odd and large, whole and
// in segments, in any order of delivery.
func TestEveryAlgorithm(t *testing.T) {
	everyAlgorithm(t, func(x subject) {
		t, kind, algo := x.T, x.kind, x.algo
		seed := uint64(0)
		for size := 1; size <= 40; size++ {
			for i, c := range variants(kind, algo, size) {
				if size > 12 && (i+size)%6 > 0 {
					continue // all of them would take minutes with the race detector
				}
				seed++
				c.verify(t, seed, false)
			}
		}
	})
}

func variants(kind p2p.Kind, algo string, size int) (all []call) {
	base := call{algo, p2p.Spec{Kind: kind, Size: size}}
	if kind == p2p.Barrier {
		return slices.Repeat([]call{base}, 5)
	}
	radices := []int{0}
	if algo == "knomial" {
		radices = []int{0, 2, 3, 4, 5}
	}
	large := int64(3001)
	if kind.Blocks() {
		large = 701
	}
	for i, n := range []int64{0, 1, 37, large} {
		for j, segment := range []int64{0, 1 + n/3, 300} {
			for _, radix := range radices {
				c := base.sized(n)
				c.Segment, c.Radix, c.Align = segment, radix, int64(8*(j%2))
				if kind.Rooted() {
					c.Root = (i*size/3 + j*size/2) % size
				}
				all = append(all, c)
			}
		}
	}
	if kind.Blocks() && kind != p2p.Alltoall {
		for _, segment := range []int64{0, 10} {
			for _, counts := range ragged(size) {
				c := base
				c.Counts, c.Segment = counts, segment
				all = append(all, c)
			}
		}
	}
	return all
}

// ragged is counts that differ from rank to rank, with zeros.
func ragged(size int) [][]int64 {
	stairs, last, one := make([]int64, size), make([]int64, size), make([]int64, size)
	for i := range size {
		stairs[i] = int64(i%4) * 11
	}
	last[size-1] = 101
	one[size/2] = 1
	return [][]int64{stairs, last, one}
}

// Every root.
func TestEveryRoot(t *testing.T) {
	everyAlgorithm(t, func(x subject) {
		t, kind, algo := x.T, x.kind, x.algo
		if !kind.Rooted() {
			return
		}
		for _, size := range []int{2, 3, 7, 8, 12, 33} {
			for root := range size {
				c := call{algo, p2p.Spec{Kind: kind, Size: size, Root: root, Segment: 20, Radix: 3}}.sized(129)
				c.verify(t, uint64(root), false)
			}
		}
	})
}

// Buffers above the 64 KiB from which chain and binary are pipelined by default.
func TestLargeBuffers(t *testing.T) {
	everyAlgorithm(t, func(x subject) {
		t, kind, algo := x.T, x.kind, x.algo
		for _, size := range []int{2, 5, 16, 23} {
			n := int64(200_001)
			if kind.Blocks() {
				n /= int64(size)
			}
			c := call{algo, p2p.Spec{Kind: kind, Size: size, Root: size - 1}}.sized(n)
			c.verify(t, uint64(size), false)
		}
	})
}

// A fabric with several connections between two ranks may let pieces overtake
// each other: they are numbered, so that does no harm.
func TestPiecesOvertake(t *testing.T) {
	everyAlgorithm(t, func(x subject) {
		t, kind, algo := x.T, x.kind, x.algo
		for size := 2; size <= 17; size++ {
			c := call{algo, p2p.Spec{Kind: kind, Size: size, Segment: 9}}.sized(100)
			seeds := uint64(10)
			if size > 8 {
				seeds = 3
			}
			for seed := range seeds {
				c.verify(t, seed, true)
			}
		}
	})
}

// Plan.Segments is the same on all ranks, and bounds the pieces that a rank sends to another.
func TestSegmentsBoundThePieces(t *testing.T) {
	for _, kind := range kinds {
		for _, algo := range p2p.Algorithms(kind) {
			for size := 2; size <= 17; size++ {
				for _, segment := range []int64{0, 1, 7, 1000} {
					c := call{algo, p2p.Spec{Kind: kind, Size: size, Segment: segment, Align: 2}}.sized(20)
					plans := c.plans(t)
					for r, p := range plans {
						to := map[int32]int64{}
						for _, s := range p.Sends {
							to[s.To]++
						}
						for peer, n := range to {
							if most := 2 * (p.Segments + int64(size)); n > most {
								t.Errorf("%v: rank %d sends rank %d %d pieces, want at most %d", c, r, peer, n, most)
							}
						}
						if p.Segments != plans[0].Segments && !kind.Private() {
							t.Errorf("%v: %d segments on rank %d, %d on rank 0", c, p.Segments, r, plans[0].Segments)
						}
					}
				}
			}
		}
	}
}
