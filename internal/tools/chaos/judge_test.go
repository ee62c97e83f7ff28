//go:build linux

package main

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// A judge that lets everything pass would be of no use: what must be a violation is one,
// and what is right is none.
func TestJudge(t *testing.T) {
	end := func(rank int) event { return event{rank: rank, end: errEnded} }
	says := func(rank int, what string, ranks ...int) event {
		return event{rank: rank, note: &note{What: what, Epoch: 1, Ranks: ranks}}
	}
	for _, tt := range []struct {
		name    string
		events  []event
		closing bool
		bad     bool
	}{
		{"names who was killed", []event{says(0, sayLost, 3)}, false, false},
		{"names who is well", []event{says(0, sayLost, 2)}, false, true},
		{"names nobody", []event{says(0, sayLost, -1)}, false, true},
		{"who was killed names anybody", []event{says(3, sayLost, 2)}, false, false},
		{"shrink misses who is well", []event{says(0, sayMissing, 1)}, false, true},
		{"shrink misses who was killed", []event{says(0, sayMissing, 3)}, false, false},
		{"goes on together", []event{says(0, sayEpoch, 0, 1, 2), says(1, sayEpoch, 0, 1, 2)}, false, false},
		{"goes on with who dies just then", []event{says(0, sayEpoch, 0, 1, 2, 3), says(1, sayEpoch, 0, 1, 2, 3)}, false, false},
		{"goes on without who is well", []event{says(0, sayEpoch, 0, 1)}, false, true},
		{"goes on with others", []event{says(0, sayEpoch, 0, 1, 2), says(1, sayEpoch, 0, 1, 2, 3)}, false, true},
		{"left out", []event{says(1, sayExcluded, 1)}, false, true},
		{"left out, and killed", []event{says(3, sayExcluded, 3)}, false, false},
		{"wrong data", []event{says(1, sayWrong)}, false, true},
		{"wrong data of who was stopped", []event{says(3, sayWrong)}, false, true},
		{"hangs", []event{says(1, sayHang)}, false, true},
		{"odd", []event{says(1, sayOdd)}, false, true},
		{"ends by itself", []event{end(1)}, false, true},
		{"ends before it was asked to", []event{says(1, sayEnd), end(1)}, false, true},
		{"ends when asked to", []event{says(1, sayEnd), end(1)}, true, false},
		{"ends when killed", []event{end(3)}, false, false},
		{"leaks", []event{{rank: 1, note: &note{What: sayEnd, tally: tally{Goroutines: 1}}}}, true, true},
		{"grows", []event{{rank: 1, note: &note{What: sayTick, tally: tally{Files: 1000}}}}, false, true},
	} {
		r := &runner{start: time.Now(), sum: newSummary(), epochs: map[int][]int{}, closing: tt.closing}
		for n := range 4 {
			r.ranks = append(r.ranks, &process{rank: n, lostAt: map[int]time.Time{}})
		}
		r.harm(r.ranks[3], "kill")
		for _, e := range tt.events {
			r.handle(e)
		}
		if bad := r.violated != nil; bad != tt.bad {
			t.Errorf("%s: %v, want a violation: %v", tt.name, r.violated, tt.bad)
		}
	}
}

// All ranks read the same in the script, and it is about everything.
func TestScript(t *testing.T) {
	s := script{seed: 7, generation: 3, epoch: 2, most: 1 << 20}
	seen := map[string]bool{}
	for call := range uint64(2000) {
		st := s.at(call)
		if st != s.at(call) {
			t.Fatalf("call %d is not the same twice", call)
		}
		if st.size < 0 || st.size > s.most {
			t.Fatalf("call %d moves %d bytes", call, st.size)
		}
		seen[st.do] = true
	}
	for _, o := range often {
		if o.do != "dup" && !seen[o.do] { // it is a split
			t.Errorf("there is no %s", o.do)
		}
	}
}

// What ranks contribute differs by rank, call and epoch, so that a wrong byte shows.
func TestFill(t *testing.T) {
	make13 := func(s script, call uint64, rank int) []byte {
		b := make([]byte, 13)
		s.fill(b, call, rank)
		return b
	}
	s := script{seed: 7, generation: 3}
	base := make13(s, 5, 1)
	other := s
	other.epoch = 1
	for _, b := range [][]byte{make13(s, 5, 2), make13(s, 6, 1), make13(other, 5, 1)} {
		if slices.Equal(base, b) {
			t.Errorf("%x twice", b)
		}
	}
	if err := same([]byte{1, 2, 3}, []byte{1, 2, 3}); err != nil {
		t.Error(err)
	}
	if err := same([]byte{1, 9, 3}, []byte{1, 2, 3}); err == nil || errors.Is(err, errEnded) {
		t.Error("a wrong byte is not seen")
	}
}
