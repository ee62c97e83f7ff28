package mcast

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/wire"
)

func mustLayout(t clustertest.TB, psnBits int) wire.Layout {
	t.Helper()
	l, err := wire.NewLayout(psnBits)
	if err != nil {
		t.Fatalf("%d PSN bits: %v", psnBits, err)
	}
	return l
}

func mustPlan(t clustertest.TB, s Shape, l wire.Layout) []*Geometry {
	t.Helper()
	plan, err := Plan(s, l)
	if err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	return plan
}

// oneRound plans a Shape that fits one round.
func oneRound(t clustertest.TB, s Shape) *Geometry {
	t.Helper()
	plan := mustPlan(t, s, mustLayout(t, 0))
	if len(plan) != 1 {
		t.Fatalf("%+v: %d rounds", s, len(plan))
	}
	return plan[0]
}

// allgather is the Shape of p equal blocks.
func allgather(p int, bytes int64, chunk, chains, subgroups int) Shape {
	return Shape{
		Kind: wire.Allgather, Counts: slices.Repeat([]int64{bytes}, p), Chunk: chunk,
		Chains: chains, Subgroups: subgroups,
	}
}

// broadcast is the Shape of one block.
func broadcast(p, root int, bytes int64, chunk, subgroups int) Shape {
	s := Shape{Kind: wire.Broadcast, Root: root, Counts: make([]int64, p), Chunk: chunk, Chains: 1, Subgroups: subgroups}
	s.Counts[root] = bytes
	return s
}

// drawShape draws any legal Shape of at most maxP ranks and blocks of about maxChunks chunks. It prefers
// sizes that tend to go wrong: 0, 1, around a multiple of the chunk.
func drawShape(t *rapid.T, maxP, maxChunks int) Shape {
	p := rapid.IntRange(1, maxP).Draw(t, "P")
	s := Shape{
		Kind:      rapid.SampledFrom([]wire.CallKind{wire.Allgather, wire.Allgather, wire.Broadcast}).Draw(t, "kind"),
		Counts:    make([]int64, p),
		Chunk:     rapid.SampledFrom([]int{1, 2, 3, 7, 8, 64}).Draw(t, "chunk"),
		Chains:    rapid.IntRange(1, p).Draw(t, "M"),
		Subgroups: rapid.IntRange(1, 8).Draw(t, "S"),
		Streams:   rapid.IntRange(0, p).Draw(t, "T"),
	}
	size := rapid.Custom(func(t *rapid.T) int64 {
		c := int64(s.Chunk)
		n := c*rapid.Int64Range(0, int64(maxChunks)).Draw(t, "chunks") + rapid.Int64Range(-1, c-1).Draw(t, "tail")
		return rapid.SampledFrom([]int64{0, 1, c, max(0, n), max(0, n), max(0, n)}).Draw(t, "size")
	})
	switch {
	case s.Kind == wire.Broadcast:
		s.Root = rapid.IntRange(0, p-1).Draw(t, "root")
		s.Counts[s.Root] = size.Draw(t, "bytes")
	case rapid.Bool().Draw(t, "equal sizes"):
		n := size.Draw(t, "bytes")
		for i := range s.Counts {
			s.Counts[i] = n
		}
	default:
		for i := range s.Counts {
			s.Counts[i] = size.Draw(t, "bytes")
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "placed by topology") == 0 {
		s.Groups = drawGroups(t, p)
	}
	return s
}

// drawGroups draws chains that hold each of p ranks once, in any order.
func drawGroups(t *rapid.T, p int) [][]int {
	ranks := make([]int, p)
	for i := range ranks {
		ranks[i] = i
	}
	ranks = rapid.Permutation(ranks).Draw(t, "order")
	var groups [][]int
	for len(ranks) > 0 {
		n := rapid.IntRange(1, len(ranks)).Draw(t, "length")
		groups = append(groups, ranks[:n])
		ranks = ranks[n:]
	}
	return groups
}

func sum(counts []int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}
