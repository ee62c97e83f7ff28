package mcast

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/allcast/allcast/internal/wire"
)

// bitModel is a naive Bitmap.
type bitModel []bool

func (m bitModel) next(i, end uint32, want bool) uint32 {
	for ; i < end; i++ {
		if m[i] == want {
			return i
		}
	}
	return end
}

func (m bitModel) count(i, n uint32) (set uint32) {
	for _, b := range m[i : i+n] {
		if b {
			set++
		}
	}
	return set
}

func has(b *Bitmap, i uint32) bool { return b.NextSet(i, i+1) == i }

func TestBitmapAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := uint32(rapid.IntRange(1, 300).Draw(t, "bits"))
		b, m := NewBitmap(n), make(bitModel, n)
		if rapid.Bool().Draw(t, "without words") {
			b = &Bitmap{n: n}
		}
		bit := rapid.Uint32Range(0, n-1)
		span := func(t *rapid.T) (i, k uint32) {
			i = rapid.Uint32Range(0, n).Draw(t, "from")
			return i, rapid.Uint32Range(0, n-i).Draw(t, "length")
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if got, want := b.Count(), m.count(0, n); got != want {
					t.Fatalf("%d bits set, want %d", got, want)
				}
				for i := range n {
					if has(b, i) != m[i] {
						t.Fatalf("bit %d: %v", i, has(b, i))
					}
				}
			},
			"Set": func(t *rapid.T) {
				i := bit.Draw(t, "bit")
				if b.words == nil {
					t.Skip("Set needs words")
				}
				if fresh := b.Set(i); fresh == m[i] {
					t.Fatalf("Set(%d): fresh %v, was %v", i, fresh, m[i])
				}
				m[i] = true
			},
			"SetRange": func(t *rapid.T) {
				i, k := span(t)
				b.SetRange(i, k)
				for j := range k {
					m[i+j] = true
				}
			},
			"ClearRange": func(t *rapid.T) {
				i, k := span(t)
				if got, want := b.ClearRange(i, k), m.count(i, k); got != want {
					t.Fatalf("ClearRange(%d, %d): %d were set, want %d", i, k, got, want)
				}
				clear(m[i : i+k])
			},
			"runs": func(t *rapid.T) {
				i, k := span(t)
				got := make(bitModel, n)
				end := i
				for q := range runs(wire.Range{PSN: i, N: k}, b.NextSet, b.NextClear) {
					if q.N == 0 || q.PSN < end || q.PSN == end && end > i || q.PSN+q.N > i+k {
						t.Fatalf("runs(%d, %d) yields %v after %d", i, k, q, end)
					}
					end = q.PSN + q.N
					for j := range q.N {
						got[q.PSN+j] = true
					}
				}
				if !slices.Equal(got[i:i+k], m[i:i+k]) {
					t.Fatalf("runs(%d, %d) yields %v, want %v", i, k, got[i:i+k], m[i:i+k])
				}
			},
			"Next": func(t *rapid.T) {
				i, k := span(t)
				if got, want := b.NextSet(i, i+k), m.next(i, i+k, true); got != want {
					t.Fatalf("NextSet(%d, %d): %d, want %d", i, i+k, got, want)
				}
				if got, want := b.NextClear(i, i+k), m.next(i, i+k, false); got != want {
					t.Fatalf("NextClear(%d, %d): %d, want %d", i, i+k, got, want)
				}
			},
		})
	})
}

// Word borders are where shifts and masks go wrong: every range of three words.
func TestBitmapEveryRange(t *testing.T) {
	const n = 192
	for i := range uint32(n + 1) {
		for k := range n + 1 - i {
			b := NewBitmap(n)
			b.SetRange(i, k)
			first := uint32(n)
			if k > 0 {
				first = i
			}
			if b.Count() != k || b.NextSet(0, n) != first || b.NextClear(i, n) != i+k {
				t.Fatalf("SetRange(%d, %d): %d set, the first %d, then clear at %d",
					i, k, b.Count(), b.NextSet(0, n), b.NextClear(i, n))
			}
			b.ClearRange(i, k)
			if b.Count() != 0 {
				t.Fatalf("ClearRange(%d, %d) leaves %d", i, k, b.Count())
			}
		}
	}
}

func TestBitmapEmpty(t *testing.T) {
	b := NewBitmap(0)
	if b.NextSet(0, 0) != 0 || b.NextClear(0, 0) != 0 || b.ClearRange(0, 0) != 0 || b.Count() != 0 {
		t.Error("an empty bitmap has bits")
	}
}
