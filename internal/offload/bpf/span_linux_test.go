package bpf

import (
	"math/rand/v2"
	"testing"
)

// No entry is handed out twice, and returned entries merge into one span.
func TestSpans(t *testing.T) {
	const size = 1000
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		s := spans{{0, size}}
		taken, free := [size]bool{}, uint32(size)
		var held []span
		for range 2000 {
			if r.IntN(2) == 0 && len(held) > 0 {
				i := r.IntN(len(held))
				h := held[i]
				held[i] = held[len(held)-1]
				held = held[:len(held)-1]
				s.give(h.at, h.n)
				free += h.n
				for k := range h.n {
					taken[h.at+k] = false
				}
			} else if n := 1 + r.Uint32N(40); true {
				at, ok := s.take(n)
				if !ok {
					continue
				}
				held = append(held, span{at, n})
				free -= n
				for k := range n {
					if taken[at+k] {
						t.Fatalf("entry %d was handed out twice", at+k)
					}
					taken[at+k] = true
				}
			}
			checkSpans(t, s, free)
		}
		for _, h := range held {
			s.give(h.at, h.n)
		}
		if len(s) != 1 || s[0] != (span{0, size}) {
			t.Fatalf("free spans after all entries were returned: %v", s)
		}
	}
}

// checkSpans checks that spans are sorted, nonempty and not adjacent, and that their sum is right.
func checkSpans(t *testing.T, s spans, free uint32) {
	t.Helper()
	sum := uint32(0)
	for i, f := range s {
		sum += f.n
		if f.n == 0 || i > 0 && s[i-1].at+s[i-1].n >= f.at {
			t.Fatalf("spans are empty, adjacent or not sorted: %v", s)
		}
	}
	if sum != free {
		t.Fatalf("%d entries are free, want %d: %v", sum, free, s)
	}
}

func TestSpansEdges(t *testing.T) {
	s := spans{{0, 10}}
	if _, ok := s.take(11); ok {
		t.Error("took more entries than exist")
	}
	if at, ok := s.take(10); !ok || at != 0 || len(s) != 0 {
		t.Errorf("take all: offset %d, ok %v, rest %v", at, ok, s)
	}
	if _, ok := s.take(1); ok {
		t.Error("took an entry when none is free")
	}
	s.give(3, 0)
	s.give(5, 5)
	s.give(0, 4)
	if _, ok := s.take(6); ok {
		t.Error("took a span across an entry in use")
	}
	s.give(4, 1)
	if len(s) != 1 || s[0] != (span{0, 10}) {
		t.Errorf("the spans did not merge: %v", s)
	}
}
