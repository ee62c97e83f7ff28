package mcast

import "math/bits"

// A Bitmap is a set of chunks.
type Bitmap struct {
	words []uint64
	n     uint32
}

// NewBitmap returns a bitmap of n clear bits.
func NewBitmap(n uint32) *Bitmap {
	return &Bitmap{words: make([]uint64, (uint64(n)+63)/64), n: n}
}

// Len returns the number of bits.
func (b *Bitmap) Len() uint32 { return b.n }

// Has reports whether bit i is set.
func (b *Bitmap) Has(i uint32) bool { return b.words[i/64]&(1<<(i%64)) != 0 }

// Set sets bit i and reports whether it was clear.
func (b *Bitmap) Set(i uint32) bool {
	w, m := &b.words[i/64], uint64(1)<<(i%64)
	old := *w
	*w |= m
	return old&m == 0
}

// SetRange sets bits [i, i+n) and returns how many of them were clear.
func (b *Bitmap) SetRange(i, n uint32) (fresh uint32) {
	b.each(i, n, func(w *uint64, m uint64) {
		fresh += uint32(bits.OnesCount64(m &^ *w))
		*w |= m
	})
	return fresh
}

// ClearRange clears bits [i, i+n) and returns how many of them were set.
func (b *Bitmap) ClearRange(i, n uint32) (cleared uint32) {
	b.each(i, n, func(w *uint64, m uint64) {
		cleared += uint32(bits.OnesCount64(m & *w))
		*w &^= m
	})
	return cleared
}

// Count returns how many of the bits [i, i+n) are set.
func (b *Bitmap) Count(i, n uint32) (set uint32) {
	b.each(i, n, func(w *uint64, m uint64) { set += uint32(bits.OnesCount64(*w & m)) })
	return set
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
func (b *Bitmap) NextClear(i, end uint32) uint32 { return b.next(i, end, ^uint64(0)) }

// NextSet returns the first set bit in [i, end), or end.
func (b *Bitmap) NextSet(i, end uint32) uint32 { return b.next(i, end, 0) }

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
