package mcast

import (
	"testing"

	"pgregory.net/rapid"
)

// bitModel is a Bitmap that is too simple to be wrong.
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

func TestBitmapAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := uint32(rapid.IntRange(1, 300).Draw(t, "bits"))
		b, m := NewBitmap(n), make(bitModel, n)
		if b.Len() != n {
			t.Fatalf("length %d, want %d", b.Len(), n)
		}
		bit := rapid.Uint32Range(0, n-1)
		span := func(t *rapid.T) (i, k uint32) {
			i = rapid.Uint32Range(0, n).Draw(t, "from")
			return i, rapid.Uint32Range(0, n-i).Draw(t, "length")
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if got, want := b.Count(0, n), m.count(0, n); got != want {
					t.Fatalf("%d bits set, want %d", got, want)
				}
				for i := range n {
					if b.Has(i) != m[i] {
						t.Fatalf("bit %d: %v", i, b.Has(i))
					}
				}
			},
			"Set": func(t *rapid.T) {
				i := bit.Draw(t, "bit")
				if fresh := b.Set(i); fresh == m[i] {
					t.Fatalf("Set(%d): fresh %v, was %v", i, fresh, m[i])
				}
				m[i] = true
			},
			"SetRange": func(t *rapid.T) {
				i, k := span(t)
				if got, want := b.SetRange(i, k), k-m.count(i, k); got != want {
					t.Fatalf("SetRange(%d, %d): %d fresh, want %d", i, k, got, want)
				}
				for j := range k {
					m[i+j] = true
				}
			},
			"ClearRange": func(t *rapid.T) {
				i, k := span(t)
				b.ClearRange(i, k)
				clear(m[i : i+k])
			},
			"Count": func(t *rapid.T) {
				i, k := span(t)
				if got, want := b.Count(i, k), m.count(i, k); got != want {
					t.Fatalf("Count(%d, %d): %d, want %d", i, k, got, want)
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
			if fresh := b.SetRange(i, k); fresh != k {
				t.Fatalf("SetRange(%d, %d): %d fresh", i, k, fresh)
			}
			first := uint32(n)
			if k > 0 {
				first = i
			}
			if b.Count(0, n) != k || b.NextSet(0, n) != first || b.NextClear(i, n) != i+k {
				t.Fatalf("SetRange(%d, %d): %d set, the first %d, then clear at %d",
					i, k, b.Count(0, n), b.NextSet(0, n), b.NextClear(i, n))
			}
			b.ClearRange(i, k)
			if b.Count(0, n) != 0 {
				t.Fatalf("ClearRange(%d, %d) leaves %d", i, k, b.Count(0, n))
			}
		}
	}
}

func TestBitmapEmpty(t *testing.T) {
	b := NewBitmap(0)
	if b.Len() != 0 || b.NextSet(0, 0) != 0 || b.NextClear(0, 0) != 0 || b.SetRange(0, 0) != 0 || b.Count(0, 0) != 0 {
		t.Error("an empty bitmap has bits")
	}
}
