package p2p_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/p2p"
)

// sums runs a reduction on terms instead of numbers: the result shows how each byte was summed.
func (c call) sums(t *testing.T, seed uint64) [][]string {
	t.Helper()
	ref := c.reference(seed)
	bufs := make([][]string, c.Size)
	for r := range bufs {
		bufs[r] = slices.Repeat([]string{fmt.Sprint(r)}, int(ref.Total()))
	}
	w := newCluster(t, c, seed, c.plans(t), bufs, func(have, came string) string {
		if c.algo == "recursive-doubling" && came < have {
			have, came = came, have // both ranks of a pair add the same sums
		}
		return "(" + have + "+" + came + ")"
	})
	w.finish()
	for r, m := range w.ranks {
		lo, hi := ref.Wanted(r)
		bufs[r] = m.buf[lo:hi]
	}
	return bufs
}

// An Allreduce gives the same bits on all ranks: each block is summed in one
// place.
func TestAllreduceIsTheSameOnAllRanks(t *testing.T) {
	for _, algo := range p2p.Algorithms(p2p.Allreduce) {
		t.Run(algo, func(t *testing.T) {
			t.Parallel()
			for size := 1; size <= 17; size++ {
				c := call{algo, p2p.Spec{Kind: p2p.Allreduce, Size: size, Bytes: int64(2 * size)}}
				for seed := range uint64(5) {
					sums := c.sums(t, seed)
					for r, got := range sums {
						if !slices.Equal(got, sums[0]) {
							t.Fatalf("%v, seed %d: rank %d has\n%v, rank 0\n%v", c, seed, r, got, sums[0])
						}
					}
				}
			}
		})
	}
}

// The documented order of summation does not depend on the order of delivery: floats give the same bits in
// every run.
func TestOrderOfSummation(t *testing.T) {
	everyAlgorithm(t, func(x subject) {
		t, kind, algo := x.T, x.kind, x.algo
		if !kind.Reduces() {
			return
		}
		for size := 2; size <= 17; size++ {
			c := call{algo, p2p.Spec{Kind: kind, Size: size}}.sized(int64(size))
			want := c.sums(t, 0)
			for seed := uint64(1); seed < 20; seed++ {
				for r, got := range c.sums(t, seed) {
					if i := differ(got, want[r]); i >= 0 {
						t.Fatalf("%v: rank %d sums byte %d as\n%s with seed %d and as\n%s with seed 0", c, r, i, got[i], seed, want[r][i])
					}
				}
			}
		}
	})
}

func differ(a, b []string) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// The order of the ring as the package comment has it:
// x(b) + (x(b-1) + ( ... + x(b+1))).
func TestOrderOfTheRing(t *testing.T) {
	for _, kind := range []p2p.Kind{p2p.ReduceScatter, p2p.Allreduce} {
		for size := 1; size <= 17; size++ {
			c := call{"ring", p2p.Spec{Kind: kind, Size: size}}.sized(1)
			if kind == p2p.Allreduce {
				c.Bytes = int64(size)
			}
			for r, got := range c.sums(t, uint64(size)) {
				if kind == p2p.ReduceScatter && got[0] != ringSum(r, size) {
					t.Errorf("%v: rank %d sums as %s, want %s", c, r, got[0], ringSum(r, size))
				}
				for b := 0; kind == p2p.Allreduce && b < size; b++ {
					if got[b] != ringSum(b, size) {
						t.Errorf("%v: block %d is summed as %s, want %s", c, b, got[b], ringSum(b, size))
					}
				}
			}
		}
	}
}

func ringSum(b, size int) string {
	s := fmt.Sprint((b + 1) % size)
	for i := 2; i <= size; i++ {
		s = fmt.Sprintf("(%d+%s)", (b+i)%size, s)
	}
	return s
}

// The order of the trees as the package comment has it: a rank adds the sums of its near children first.
func TestOrderOfTheTrees(t *testing.T) {
	for size := 1; size <= 17; size++ {
		pat := call{"pat", p2p.Spec{Kind: p2p.ReduceScatter, Size: size}}.sized(1)
		for r, got := range pat.sums(t, uint64(size)) {
			if want := treeSum(r, 0, size); got[0] != want {
				t.Errorf("%v: rank %d sums as %s, want %s", pat, r, got[0], want)
			}
		}
		for root := range size {
			for algo, want := range map[string]string{
				"binomial": treeSum(root, 0, size), "chain": chainSum(root, size),
			} {
				c := call{algo, p2p.Spec{Kind: p2p.Reduce, Size: size, Root: root}}.sized(1)
				if got := c.sums(t, uint64(size)); got[root][0] != want {
					t.Errorf("%v: summed as %s, want %s", c, got[root][0], want)
				}
			}
			c := call{"ring", p2p.Spec{Kind: p2p.Reduce, Size: size, Root: root}}.sized(int64(size))
			for b, got := range c.sums(t, uint64(size))[root] {
				if got != ringSum(b, size) {
					t.Errorf("%v: block %d is summed as %s, want %s", c, b, got, ringSum(b, size))
				}
			}
		}
	}
}

// treeSum is the sum of rank root+v and its binomial subtree.
func treeSum(root, v, size int) string {
	s := fmt.Sprint((root + v) % size)
	for d := 1; v+d < size && v&d == 0; d *= 2 {
		s = fmt.Sprintf("(%s+%s)", s, treeSum(root, v+d, size))
	}
	return s
}

func chainSum(root, size int) string {
	s := fmt.Sprint((root + size - 1) % size)
	for v := size - 2; v >= 0; v-- {
		s = fmt.Sprintf("(%d+%s)", (root+v)%size, s)
	}
	return s
}
