package mcast

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/wire"
)

// checkCover checks that the rounds of a plan cut the receive buffer into
// chunks that cover each byte exactly once, and that Block, Owner, Locate and
// Span agree about them.
func checkCover(t clustertest.TB, s Shape, plan []*Geometry, l wire.Layout) {
	t.Helper()
	displs := make([]int64, len(s.Counts)+1)
	for r, n := range s.Counts {
		displs[r+1] = displs[r] + n
	}
	covered := make([]uint8, displs[len(s.Counts)])
	for round, g := range plan {
		var bytes int64
		var chunks uint64
		for sub := range g.Streams() {
			if int64(g.PSNs(sub)) > l.Capacity() {
				t.Fatalf("round %d, stream %d: %d PSNs, the layout has %d", round, sub, g.PSNs(sub), l.Capacity())
			}
			chunks += uint64(g.PSNs(sub))
			next := uint32(0)
			for _, i := range g.order[sub] {
				rank := g.senders[i]
				psn, n := g.Block(sub, rank)
				if n == 0 {
					continue
				}
				if psn != next {
					t.Fatalf("round %d, stream %d: rank %d begins at PSN %d, want %d", round, sub, rank, psn, next)
				}
				next = psn + n
				for ; psn < next; psn++ {
					off, inBlock, length := g.Locate(sub, psn)
					if owner := g.Owner(sub, psn); owner != rank || off != displs[rank]+inBlock {
						t.Fatalf("round %d, stream %d, PSN %d: rank %d's, at %d, %d in its block; want rank %d",
							round, sub, psn, owner, off, inBlock, rank)
					}
					if inBlock%int64(s.Chunk) != 0 || int64(length) != min(int64(s.Chunk), s.Counts[rank]-inBlock) || length < 1 {
						t.Fatalf("round %d, stream %d, PSN %d: %d bytes at %d of a block of %d",
							round, sub, psn, length, inBlock, s.Counts[rank])
					}
					for i := range int64(length) {
						covered[off+i]++
					}
					bytes += int64(length)
				}
				checkSpans(t, g, sub, rank)
			}
			if next != g.PSNs(sub) {
				t.Fatalf("round %d, stream %d: blocks end at PSN %d of %d", round, sub, next, g.PSNs(sub))
			}
		}
		if bytes != g.Bytes() || chunks != g.Chunks() {
			t.Fatalf("round %d: says %d bytes in %d chunks; it is %d in %d", round, g.Bytes(), g.Chunks(), bytes, chunks)
		}
	}
	for i, n := range covered {
		if n != 1 {
			t.Fatalf("byte %d is carried by %d chunks", i, n)
		}
	}
}

// checkSpans compares Span with Locate for some ranges of a rank's block.
func checkSpans(t clustertest.TB, g *Geometry, sub, rank int) {
	t.Helper()
	first, n := g.Block(sub, rank)
	for i := range n {
		for _, k := range []uint32{1, 2, (n - i + 1) / 2, n - i} {
			if k < 1 || k > n-i {
				continue
			}
			off, length := g.Span(sub, first+i, k)
			var want int64
			for j := range k {
				at, _, chunk := g.Locate(sub, first+i+j)
				if at != off+want {
					t.Fatalf("stream %d: chunk %d of rank %d is at %d, want %d", sub, i+j, rank, at, off+want)
				}
				want += int64(chunk)
			}
			if length != want {
				t.Fatalf("stream %d: chunks %d-%d of rank %d span %d bytes, want %d", sub, i, i+k-1, rank, length, want)
			}
		}
	}
}

func TestGeometryCoversEveryByteOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t, 16, 20)
		l := mustLayout(t, rapid.IntRange(wire.MinPSNBits, 10).Draw(t, "PSN bits"))
		checkCover(t, s, mustPlan(t, s, l), l)
	})
}

// Subgroups carry contiguous blocks (Section IV-C), of equal length up to one chunk.
func TestSubgroupsAreContiguous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, g := range mustPlan(t, drawShape(t, 6, 30), mustLayout(t, 6)) {
			for rank := range g.Size() {
				end, least, most := int64(-1), uint32(math.MaxUint32), uint32(0)
				for sub := range g.Subgroups() {
					if i := g.index[rank]; i >= 0 {
						sub = g.stream(int(i), sub)
					}
					psn, n := g.Block(sub, rank)
					least, most = min(least, n), max(most, n)
					if n == 0 {
						continue
					}
					off, length := g.Span(sub, psn, n)
					if end >= 0 && off != end {
						t.Fatalf("rank %d: stream %d begins at %d, the one before it ends at %d", rank, sub, off, end)
					}
					end = off + length
				}
				if most > least+1 {
					t.Fatalf("rank %d: subgroups carry between %d and %d of its chunks", rank, least, most)
				}
			}
		}
	})
}

func TestRounds(t *testing.T) {
	l := mustLayout(t, 4) // 16 PSNs per subgroup
	for _, c := range []struct {
		name   string
		shape  Shape
		rounds int
	}{
		{"fits exactly", broadcast(3, 1, 16, 1, 1), 1},
		{"one chunk too many", broadcast(3, 1, 17, 1, 1), 2},
		{"subgroups number apart", broadcast(3, 1, 32, 1, 2), 1},
		{"allgather shares the PSNs", allgather(4, 4, 1, 1, 1), 1},
		{"allgather, one too many", allgather(4, 5, 1, 1, 1), 2},
		{"as many senders as PSNs", allgather(16, 7, 1, 1, 1), 7},
		{"senders that do not divide the PSNs", allgather(5, 7, 1, 1, 1), 3},
		{"nothing to send", allgather(40, 0, 1, 1, 1), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := mustPlan(t, c.shape, l)
			if len(plan) != c.rounds {
				t.Errorf("%d rounds, want %d", len(plan), c.rounds)
			}
			checkCover(t, c.shape, plan, l)
		})
	}
}

// Plan must plan sizes that no machine holds today right, or refuse them: a user may ask for any int64.
func TestPlanHuge(t *testing.T) {
	for _, c := range []struct {
		name  string
		bits  int
		shape Shape
	}{
		{"1 TiB in 4 KiB chunks", 24, broadcast(2, 0, 1<<40, 4096, 1)},
		{"100 ranks x 1 TiB", 24, allgather(100, 1<<40, 4096, 4, 8)},
		{"2^32 chunks in one block", 31, broadcast(2, 0, 1<<32, 1, 4)},
		{"2^33 chunks in one block", 31, broadcast(2, 0, 1<<33, 1, 1024)},
		{"16 TiB in 4 KiB chunks, default PSN bits", 24, broadcast(2, 0, 1<<44, 4096, 256)},
		{"2^34 chunks in all, default PSN bits", 24, allgather(16, 1<<30, 1, 1, 1024)},
		{"all that 63 bits hold", 31, broadcast(2, 0, math.MaxInt64, 1<<30, 4)},
		{"more rounds than fit any memory", 4, broadcast(2, 0, 1<<62, 1, 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := mustLayout(t, c.bits)
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("it panics: %v", r)
				}
			}()
			plan, err := Plan(c.shape, l)
			if err != nil {
				if !errors.Is(err, ErrShape) {
					t.Errorf("%v is no ErrShape", err)
				}
				return
			}
			var bytes int64
			var all, want uint64
			for _, n := range c.shape.Counts {
				want += (uint64(n) + uint64(c.shape.Chunk) - 1) / uint64(c.shape.Chunk)
			}
			for round, g := range plan {
				var chunks uint64
				for sub := range g.Streams() {
					chunks += uint64(g.PSNs(sub))
					if int64(g.PSNs(sub)) > l.Capacity() {
						t.Errorf("round %d, stream %d: %d PSNs", round, sub, g.PSNs(sub))
					}
				}
				if chunks != g.Chunks() {
					t.Errorf("round %d: %d chunks, the streams carry %d", round, g.Chunks(), chunks)
				}
				// A Collective counts missing chunks in 32 bits.
				if g.Chunks() > math.MaxUint32 {
					t.Errorf("round %d: %d chunks", round, g.Chunks())
				}
				bytes += g.Bytes()
				all += g.Chunks()
			}
			if bytes != sum(c.shape.Counts) || all != want {
				t.Errorf("%d rounds carry %d bytes in %d chunks, want %d in %d", len(plan), bytes, all, sum(c.shape.Counts), want)
			}
		})
	}
}
