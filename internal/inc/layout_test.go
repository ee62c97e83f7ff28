package inc

import (
	"testing"

	"pgregory.net/rapid"
)

// drawCounts draws block sizes, among them empty and equal ones.
func drawCounts(t *rapid.T, size int) []int64 {
	if rapid.Bool().Draw(t, "equal") {
		n := rapid.Int64Range(0, 40).Draw(t, "bytes")
		counts := make([]int64, size)
		for i := range counts {
			counts[i] = n
		}
		return counts
	}
	one := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 40))
	return rapid.SliceOfN(one, size, size).Draw(t, "counts")
}

// The order is defined by a loop over rounds and blocks. Place, At and Before must agree with it.
func TestLayoutOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counts := drawCounts(t, rapid.IntRange(1, 9).Draw(t, "size"))
		chunk := rapid.IntRange(1, 9).Draw(t, "chunk")
		l := NewLayout(counts, chunk)
		if rapid.Bool().Draw(t, "unlisted") {
			for i := range l.layers {
				l.layers[i].blocks = nil
			}
		}
		place, before := uint32(0), make([]uint32, len(counts))
		for round := range int64(41) {
			displ := int64(0)
			for owner, n := range counts {
				if at := round * int64(chunk); at < n {
					o, nth, off, length := l.At(place)
					if o != owner || int64(nth) != round || off != displ+at || length != min(int64(chunk), n-at) {
						t.Fatalf("place %d is chunk %d of block %d at %d, %d bytes; want chunk %d of block %d at %d",
							place, nth, o, off, length, round, owner, displ+at)
					}
					if p := l.Place(owner, nth); p != place {
						t.Fatalf("chunk %d of block %d has place %d, want %d", nth, owner, p, place)
					}
					for i := range counts {
						if got := l.Before(i, place); got != before[i] {
							t.Fatalf("%d chunks of block %d before place %d, want %d", got, i, place, before[i])
						}
					}
					place++
					before[owner]++
				}
				displ += n
			}
		}
		if l.Places() != place {
			t.Fatalf("%d places, want %d", l.Places(), place)
		}
		for owner, n := range before {
			if l.Chunks(owner) != n || l.Place(owner, n) != place || l.Before(owner, place) != n {
				t.Fatalf("block %d has %d chunks, want %d", owner, l.Chunks(owner), n)
			}
		}
	})
}

// A layout of many different lengths does not list all blocks of all layers.
func TestLayoutMemory(t *testing.T) {
	counts := make([]int64, 2000)
	for i := range counts {
		counts[i] = int64(i*7919%2000 + 1)
	}
	l, listed, groups := NewLayout(counts, 1), 0, 0
	for _, y := range l.layers {
		listed += len(y.blocks)
		groups += len(y.before)
	}
	if len(l.layers) != 2000 || listed > maxListed || listed == 0 || groups > maxListed || l.group > 64 {
		t.Fatalf("%d layers list %d blocks and %d groups of %d", len(l.layers), listed, groups, l.group)
	}
	for place := uint32(0); place < l.Places(); place += 997 {
		owner, nth, _, _ := l.At(place)
		if p := l.Place(owner, nth); p != place {
			t.Fatalf("place %d is chunk %d of block %d, which has place %d", place, nth, owner, p)
		}
	}
}

func BenchmarkLayoutAt(b *testing.B) {
	counts := make([]int64, 64)
	for i := range counts {
		counts[i] = 1<<20 + int64(i%2)*4
	}
	l := NewLayout(counts, 1408)
	b.ReportAllocs()
	for i := range b.N {
		l.At(uint32(i) % l.Places())
	}
}
