package mcast

import (
	"math/bits"
	"slices"
	"testing"
)

const treeSizes = 130

func TestControlTreeSpansAllRanks(t *testing.T) {
	for size := 1; size <= treeSizes; size++ {
		reached := make([]int, size)
		type at struct{ rank, depth int }
		todo := []at{{0, 0}}
		for len(todo) > 0 {
			x := todo[0]
			todo = todo[1:]
			reached[x.rank]++
			if x.depth > bits.Len(uint(size)) {
				t.Fatalf("P=%d: rank %d is %d below the top", size, x.rank, x.depth)
			}
			for _, c := range AppendTreeChildren(nil, x.rank, size) {
				if TreeParent(c, size) != x.rank {
					t.Fatalf("P=%d: rank %d has child %d, whose parent is %d", size, x.rank, c, TreeParent(c, size))
				}
				todo = append(todo, at{c, x.depth + 1})
			}
		}
		for rank, n := range reached {
			if n != 1 {
				t.Fatalf("P=%d: rank %d is reached %d times", size, rank, n)
			}
		}
		if TreeParent(0, size) != -1 {
			t.Fatalf("P=%d: the top has parent %d", size, TreeParent(0, size))
		}
	}
}

func TestControlTreeEdgesAreBarrierPartners(t *testing.T) {
	for size := 2; size <= treeSizes; size++ {
		for rank := 1; rank < size; rank++ {
			b := newBarrier(rank, size, 0)
			found := false
			for round := 0; round <= b.last; round++ {
				found = found || b.peer(round) == TreeParent(rank, size)
			}
			if !found {
				t.Fatalf("P=%d: rank %d never meets its parent %d in the barrier", size, rank, TreeParent(rank, size))
			}
		}
	}
}

func TestPeers(t *testing.T) {
	for size := 1; size <= treeSizes; size++ {
		peers := make([][]int, size)
		for rank := range size {
			peers[rank] = AppendPeers(nil, rank, size)
		}
		for rank, list := range peers {
			sorted := slices.Clone(list)
			slices.Sort(sorted)
			if len(slices.Compact(sorted)) != len(list) || slices.Contains(list, rank) {
				t.Fatalf("P=%d: peers of rank %d: %v", size, rank, list)
			}
			for _, p := range list {
				if p < 0 || p >= size || !slices.Contains(peers[p], rank) {
					t.Fatalf("P=%d: rank %d lists %d, not the other way round", size, rank, p)
				}
			}
			want := []int{(rank + 1) % size, (rank + size - 1) % size}
			if up := TreeParent(rank, size); up >= 0 {
				want = append(want, up)
			}
			for _, p := range AppendTreeChildren(want, rank, size) {
				if p != rank && !slices.Contains(list, p) {
					t.Fatalf("P=%d: rank %d does not list %d", size, rank, p)
				}
			}
			// Few enough for a connection each: the ring, the core's log2 P, the fold.
			if len(list) > bits.Len(uint(size))+2 {
				t.Fatalf("P=%d: rank %d has %d peers", size, rank, len(list))
			}
		}
	}
}

func TestAppendPeersAppends(t *testing.T) {
	// Ranks that the list already holds do not matter: rank 1 is appended nevertheless.
	got := AppendPeers([]int{1, 1}, 0, 3)
	if !slices.Equal(got, []int{1, 1, 2, 1}) {
		t.Errorf("%v", got)
	}
}

// If one rank sends, the ranks between it and the top tell their parents once, and wait for no other
// rank.
func TestSentTreeOfOneSender(t *testing.T) {
	for size := 1; size <= treeSizes; size++ {
		for only := range size {
			trees := make([]sentTree, size)
			for rank := range trees {
				trees[rank] = newSentTree(rank, size, only)
			}
			above := map[int]int{only: -1} // ranks between the sender and the top, and the child that each waits for
			for r := only; TreeParent(r, size) >= 0; r = TreeParent(r, size) {
				above[TreeParent(r, size)] = r
			}
			for rank := range trees {
				tree := &trees[rank]
				child, on := above[rank]
				if tree.silent == on {
					t.Fatalf("P=%d, %d sends: rank %d is silent: %v", size, only, rank, tree.silent)
				}
				for _, c := range tree.children {
					if tree.childFinished(c) != (on && c == child) {
						t.Fatalf("P=%d, %d sends: rank %d waits for %d, or does not", size, only, rank, c)
					}
				}
				if slices.Contains(tree.heard, false) {
					t.Fatalf("P=%d, %d sends: rank %d waits for more than %v", size, only, rank, tree.heard)
				}
			}
		}
	}
}
