//go:build linux

package main

import (
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
		r := &runner{cfg: &config{mode: modeFaults}, start: time.Now(), sum: newSummary(), epochs: map[int][]int{}, closing: tt.closing}
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

// Ranks that abort must have had a reason of their own, or another rank's.
func TestJudgeAborts(t *testing.T) {
	const cancelled, aborted = "allcast: failed: cancelled: rank 1", "allcast: failed: aborted: rank 1"
	says := func(what string, epoch int, text string, whom int) *note {
		return &note{What: what, Epoch: epoch, Text: text, Ranks: []int{whom}, Comm: "main"}
	}
	on := func(comm string, n *note) *note {
		n.Comm = comm
		return n
	}
	during := func(op string, call uint64, n *note) *note {
		n.Op, n.Call = op, call
		return n
	}
	for name, tt := range map[string]struct {
		notes []*note // of ranks 0, 1, ...
		bad   bool
	}{
		"cancelled":                      {[]*note{says(sayGivenUp, 1, cancelled, 1), says(sayCancelled, 1, cancelled, 1)}, false},
		"aborted by a rank that cancels": {[]*note{says(sayGivenUp, 1, aborted, 1), says(sayCancelled, 1, cancelled, 1)}, false},
		"in turn": {[]*note{
			says(sayGivenUp, 1, aborted, 1), on("other", says(sayGivenUp, 1, cancelled, 2)),
			on("other", says(sayCancelled, 1, cancelled, 2)),
		}, false},
		"by a rank that learned of it there": {[]*note{
			says(sayGivenUp, 1, aborted, 1), says(sayGivenUp, 1, cancelled, 2),
			says(sayCancelled, 1, cancelled, 2),
		}, true},
		"cancelled on another communicator": {[]*note{says(sayGivenUp, 1, cancelled, 1), on("other", says(sayCancelled, 1, cancelled, 1))}, true},
		"cancelled in the Split that made the communicator": {[]*note{
			on(madeBy(17)+"color 0", says(sayGivenUp, 1, cancelled, 1)), during("split , 3 bytes", 17, says(sayCancelled, 1, cancelled, 1)),
		}, false},
		"cancelled in another Split": {[]*note{
			on(madeBy(17)+"color 0", says(sayGivenUp, 1, cancelled, 1)), during("split , 3 bytes", 1, says(sayCancelled, 1, cancelled, 1)),
		}, true},
		"cancelled in another call than the Split": {[]*note{
			on(madeBy(17)+"color 0", says(sayGivenUp, 1, cancelled, 1)), during("barrier", 17, says(sayCancelled, 1, cancelled, 1)),
		}, true},
		"by a rank that only gave up": {[]*note{
			says(sayGivenUp, 1, cancelled, 1), says(sayGivenUp, 1, cancelled, 2),
			says(sayCancelled, 1, cancelled, 2),
		}, true},
		"by a rank that is well":   {[]*note{says(sayGivenUp, 1, aborted, 1)}, true},
		"by no single rank":        {[]*note{says(sayGivenUp, 1, aborted, -1)}, true},
		"in another epoch":         {[]*note{says(sayGivenUp, 1, cancelled, 1), says(sayCancelled, 2, cancelled, 1)}, true},
		"by itself, in two epochs": {[]*note{says(sayCancelled, 1, cancelled, 0), says(sayCancelled, 2, cancelled, 1)}, false},
	} {
		a := aborts{}
		for rank, n := range tt.notes {
			a.add(rank, n)
		}
		if err := a.judge(); (err != nil) != tt.bad {
			t.Errorf("%s: %v, want a violation: %v", name, err, tt.bad)
		}
	}
}

// All ranks read the same in the script, and it is about everything.
func TestScript(t *testing.T) {
	for mode, all := range map[mode]odds{modeFaults: everything, modeCancel: everything, modeLoss: multicasts} {
		s := script{mode: mode, seed: 7, generation: 3, epoch: 2, most: 1 << 20}
		seen := map[string]bool{}
		for call := range uint64(2000) {
			st := s.at(call)
			if st != s.at(call) {
				t.Fatalf("%s: call %d is not the same twice", mode, call)
			}
			if st.size < 0 || st.size > s.most || mode == modeLoss && (st.size < s.most/8 || st.algo != "mcast" || st.part(1).algo != "mcast") {
				t.Fatalf("%s: call %d moves %d bytes by %s", mode, call, st.size, st.algo)
			}
			seen[st.do] = true
		}
		for _, o := range all {
			if o.do != "dup" && !seen[o.do] { // it is a split
				t.Errorf("%s: there is no %s", mode, o.do)
			}
		}
	}
}

// What ranks contribute differs by rank, call and epoch, so that a wrong byte shows.
func TestPattern(t *testing.T) {
	for n := range 40 {
		filled := func(s script, call uint64, rank int) []byte {
			b := make([]byte, n)
			s.pattern(call, rank).fill(b)
			return b
		}
		s := script{seed: 7, generation: 3}
		base := filled(s, 5, 1)
		if err := s.pattern(5, 1).check(base); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
		other := s
		other.epoch = 1
		for _, b := range [][]byte{filled(s, 5, 2), filled(s, 6, 1), filled(other, 5, 1)} {
			if n >= 8 && slices.Equal(base, b) {
				t.Errorf("%x twice", b)
			}
		}
		for i := range base {
			base[i]++
			if s.pattern(5, 1).check(base) == nil {
				t.Errorf("%d bytes: byte %d is wrong, and nobody sees it", n, i)
			}
			base[i]--
		}
	}
}
