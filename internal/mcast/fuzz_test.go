package mcast

import (
	"errors"
	"testing"
)

// shapeSeeds are shapes worth starting from, as shape reads them: kind, P, root,
// chunk, M, S, sizes, groups or not, PSN bits.
var shapeSeeds = [][]byte{
	{},
	{0, 6, 0, 8, 2, 1, 16, 0, 16, 0, 16, 0, 16, 0, 16, 0, 16, 0, 1, 8},    // Figure 8
	{2, 4, 3, 8, 1, 2, 100, 0, 1, 4},                                      // a broadcast from 3
	{0, 3, 0, 7, 3, 5, 0, 0, 1, 0, 99, 1, 1, 0},                           // sizes 0, 1, 355
	{0, 4, 0, 1, 1, 8, 255, 1, 255, 1, 255, 1, 255, 1, 1, 0},              // many rounds
	{0, 4, 0, 8, 0, 1, 9, 0, 9, 0, 9, 0, 9, 0, 0, 2, 2, 3, 1, 2, 2, 0, 8}, // chains by topology
	{0, 5, 0, 3, 40, 40, 20, 0, 20, 0, 20, 0, 20, 0, 20, 0, 1, 8},         // more chains and subgroups than fit
	{4, 2, 0, 1, 1, 1},
	{0, 0, 0, 1, 1, 1},
	{0, 2, 0, 0, 1, 1},
	{2, 3, 200, 1, 1, 1}, // nonsense
}

func FuzzGeometry(f *testing.F) {
	for _, b := range shapeSeeds {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		in := tape(b)
		s, psnBits := in.shape(24)
		l := mustLayout(t, psnBits)
		plan, err := Plan(s, l)
		if err != nil {
			if !errors.Is(err, ErrShape) || plan != nil {
				t.Fatalf("%v, %d rounds", err, len(plan))
			}
			return
		}
		checkCover(t, s, plan, l)
		for _, g := range plan {
			for step := range stepsOf(g) {
				if len(activeGroup(g, step)) == 0 {
					t.Fatalf("nobody is active in step %d of %d", step, stepsOf(g))
				}
			}
		}
	})
}

// Whatever arrives: it is placed inside the buffer, or not at all; where its PSN
// belongs; and once.
func FuzzArrivals(f *testing.F) {
	for _, b := range shapeSeeds {
		f.Add(b, []byte{0, 0, 0, 0, 1, 0, 1, 0, 255, 255, 3, 0, 2, 0, 255, 0})
	}
	f.Fuzz(func(t *testing.T, shape, datagrams []byte) {
		in := tape(shape)
		s, psnBits := in.shape(12)
		plan, err := Plan(legal(s), mustLayout(t, psnBits))
		if err != nil {
			t.Skip("no such shape")
		}
		g := plan[in.below(len(plan))]
		sub, rank := in.below(g.Streams()), in.below(g.Size())
		r := track(g, sub, rank, true)
		own, n := g.Block(sub, rank)
		placed := map[uint32]bool{}
		for d := tape(datagrams); len(d) > 0; {
			psn, length := uint32(d.u16()), int(int16(d.u16()))
			if psn > 1<<15 {
				psn <<= 16
			}
			if psn < g.PSNs(sub) && length >= 0 {
				_, _, length = g.Locate(sub, psn) // nothing interesting happens otherwise
			}
			off, v := r.accept(psn, length)
			if v != Placed {
				continue
			}
			want, _, long := g.Locate(sub, psn)
			if placed[psn] || psn >= own && psn < own+n || length != long || off != want {
				t.Fatalf("PSN %d with %d bytes placed at %d", psn, length, off)
			}
			placed[psn] = true
		}
		if r.missing != g.PSNs(sub)-n-uint32(len(placed)) {
			t.Fatalf("%d of %d placed and %d missing", len(placed), g.PSNs(sub)-n, r.missing)
		}
		if r.consumed > uint64(g.PSNs(sub)-n) || r.consumed < uint64(len(placed)) {
			t.Fatalf("%d of %d placed and %d consumed", len(placed), g.PSNs(sub)-n, r.consumed)
		}
	})
}
