package mcast

import (
	"iter"
	"math/bits"

	"github.com/allcast/allcast/internal/wire"
)

// A Bitmap is a set of chunks. Without words, all its bits are clear; SetRange allocates them.
type Bitmap struct {
	words []uint64
	n     uint32
	set   uint32 // number of set bits
}

// NewBitmap returns a bitmap of n clear bits with words.
func NewBitmap(n uint32) *Bitmap {
	return &Bitmap{words: make([]uint64, (uint64(n)+63)/64), n: n}
}

// Count returns the number of set bits.
func (b *Bitmap) Count() uint32 { return b.set }

// Set sets bit i and reports whether it was clear.
func (b *Bitmap) Set(i uint32) bool {
	w, m := &b.words[i/64], uint64(1)<<(i%64)
	if *w&m != 0 {
		return false
	}
	*w |= m
	b.set++
	return true
}

// SetRange sets bits [i, i+n).
func (b *Bitmap) SetRange(i, n uint32) {
	if b.words == nil {
		*b = *NewBitmap(b.n)
	}
	b.each(i, n, func(w *uint64, m uint64) {
		b.set += uint32(bits.OnesCount64(m &^ *w))
		*w |= m
	})
}

// ClearRange clears bits [i, i+n) and returns how many of them were set.
func (b *Bitmap) ClearRange(i, n uint32) (cleared uint32) {
	if b.set == 0 {
		return 0
	}
	b.each(i, n, func(w *uint64, m uint64) {
		cleared += uint32(bits.OnesCount64(m & *w))
		*w &^= m
	})
	b.set -= cleared
	return cleared
}

// each calls f with every word that holds some of the bits [i, i+n), and with the mask of those bits.
func (b *Bitmap) each(i, n uint32, f func(w *uint64, m uint64)) {
	for n > 0 {
		k := min(64-i%64, n)
		f(&b.words[i/64], (^uint64(0)>>(64-k))<<(i%64))
		i, n = i+k, n-k
	}
}

// NextClear returns the first clear bit in [i, end), or end.
func (b *Bitmap) NextClear(i, end uint32) uint32 {
	if b.set == 0 {
		return min(i, end)
	}
	return b.next(i, end, ^uint64(0))
}

// NextSet returns the first set bit in [i, end), or end.
func (b *Bitmap) NextSet(i, end uint32) uint32 {
	if b.set == 0 {
		return end
	}
	return b.next(i, end, 0)
}

func (b *Bitmap) next(i, end uint32, flip uint64) uint32 {
	for i < end {
		w := (b.words[i/64] ^ flip) >> (i % 64)
		if w != 0 {
			return min(i+uint32(bits.TrailingZeros64(w)), end)
		}
		i += 64 - i%64
	}
	return end
}

// runs yields the runs of chunks in q that start at a chunk that first finds and end before the next
// chunk that after finds. Both search a Bitmap or a place.Map, which may change meanwhile.
func runs(q wire.Range, first, after func(i, end uint32) uint32) iter.Seq[wire.Range] {
	return func(yield func(wire.Range) bool) {
		for at, end := q.PSN, q.PSN+q.N; at < end; {
			at = first(at, end)
			stop := after(at, end)
			if at < stop && !yield(wire.Range{PSN: at, N: stop - at}) {
				return
			}
			at = stop
		}
	}
}
