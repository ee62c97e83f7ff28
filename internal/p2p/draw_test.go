package p2p_test

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/allcast/allcast/internal/p2p"
)

// drawCall draws a call that makes sense, with blocks small enough to follow
// every byte.
func drawCall(t *rapid.T, most int) call {
	kind := rapid.SampledFrom(kinds).Draw(t, "kind")
	c := call{rapid.SampledFrom(p2p.Algorithms(kind)).Draw(t, "algo"), p2p.Spec{
		Kind:    kind,
		Size:    rapid.IntRange(1, most).Draw(t, "size"),
		Radix:   rapid.SampledFrom([]int{0, 2, 3, 4, 5}).Draw(t, "radix"),
		Segment: rapid.Int64Range(0, 9).Draw(t, "segment"),
		Align:   rapid.SampledFrom([]int64{0, 1, 2, 4}).Draw(t, "align"),
	}}
	switch {
	case kind.Blocks():
		n := rapid.SampledFrom([]int64{0, 1, 3, 12}).Draw(t, "block")
		c.Counts = slices.Repeat([]int64{n}, c.Size)
		if kind != p2p.Alltoall && rapid.Bool().Draw(t, "ragged") {
			c.Counts = rapid.SliceOfN(rapid.Int64Range(0, n), c.Size, c.Size).Draw(t, "counts")
		}
	case kind != p2p.Barrier:
		c.Bytes = rapid.Int64Range(0, 150).Draw(t, "bytes")
	}
	if kind.Rooted() {
		c.Root = rapid.IntRange(0, c.Size-1).Draw(t, "root")
	}
	return c
}
