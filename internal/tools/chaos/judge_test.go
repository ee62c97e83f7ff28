//go:build linux

package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// The judge reports every violation, and reports none if there is none.
func TestJudge(t *testing.T) {
	exits := func(rank int) event { return event{rank: rank, end: errEnded} }
	reports := func(rank int, kind string, ranks ...int) event {
		return event{rank: rank, report: &report{Kind: kind, Epoch: 1, Ranks: ranks}}
	}
	for _, tt := range []struct {
		name    string
		events  []event
		closing bool
		bad     bool
	}{
		{"blames a killed rank", []event{reports(0, kindLost, 3)}, false, false},
		{"blames a healthy rank", []event{reports(0, kindLost, 2)}, false, true},
		{"blames no rank", []event{reports(0, kindLost, -1)}, false, true},
		{"a killed rank blames any rank", []event{reports(3, kindLost, 2)}, false, false},
		{"shrink misses a healthy rank", []event{reports(0, kindMissing, 1)}, false, true},
		{"shrink misses a killed rank", []event{reports(0, kindMissing, 3)}, false, false},
		{"all continue together", []event{reports(0, kindEpoch, 0, 1, 2), reports(1, kindEpoch, 0, 1, 2)}, false, false},
		{
			"continues with a rank that is just dying",
			[]event{reports(0, kindEpoch, 0, 1, 2, 3), reports(1, kindEpoch, 0, 1, 2, 3)},
			false, false,
		},
		{"continues without a healthy rank", []event{reports(0, kindEpoch, 0, 1)}, false, true},
		{
			"ranks continue with different members",
			[]event{reports(0, kindEpoch, 0, 1, 2), reports(1, kindEpoch, 0, 1, 2, 3)},
			false, true,
		},
		{"excluded", []event{reports(1, kindExcluded, 1)}, false, true},
		{"excluded and killed", []event{reports(3, kindExcluded, 3)}, false, false},
		{"wrong data", []event{reports(1, kindWrong)}, false, true},
		{"wrong data on a killed rank", []event{reports(3, kindWrong)}, false, true},
		{"hangs", []event{reports(1, kindHang)}, false, true},
		{"unexpected error", []event{reports(1, kindUnexpected)}, false, true},
		{"exits without a reason", []event{exits(1)}, false, true},
		{"exits before it was asked to", []event{reports(1, kindEnd), exits(1)}, false, true},
		{"exits when asked to", []event{reports(1, kindEnd), exits(1)}, true, false},
		{"exits when killed", []event{exits(3)}, false, false},
		{"leaks", []event{{rank: 1, report: &report{Kind: kindEnd, tally: tally{usage: usage{Goroutines: 1}}}}}, true, true},
		{
			"uses too many files",
			[]event{{rank: 1, report: &report{Kind: kindProgress, tally: tally{usage: usage{Files: 1000}}}}},
			false, true,
		},
	} {
		r := &runner{
			cfg: &config{mode: modeFaults}, start: time.Now(), sum: newSummary(),
			epochs: map[int][]int{}, aborts: aborts{}, closing: tt.closing,
		}
		for n := range 4 {
			r.ranks = append(r.ranks, &process{rank: n, blamedAt: map[int]time.Time{}})
		}
		r.begin(r.ranks[3], "kill", true)
		for _, e := range tt.events {
			r.handle(e)
		}
		if bad := r.violated != nil; bad != tt.bad {
			t.Errorf("%s: %v, want a violation: %v", tt.name, r.violated, tt.bad)
		}
	}
}

// A rank that is blamed for an abort must have had a reason: its own context, or the abort of another rank.
func TestJudgeAborts(t *testing.T) {
	const cancelled, aborted = "allcast: failed: cancelled: rank 1", "allcast: failed: aborted: rank 1"
	const gaveUp = "allcast: subset failed: given up: rank 1"
	reportOf := func(kind string, epoch int, text string, blamed int) *report {
		return &report{Kind: kind, Epoch: epoch, Text: text, Ranks: []int{blamed}, Comm: "main"}
	}
	on := func(comm string, n *report) *report {
		n.Comm = comm
		return n
	}
	during := func(op string, call uint64, n *report) *report {
		n.Op, n.Call = op, call
		return n
	}
	for name, tt := range map[string]struct {
		reports []*report // by rank
		bad     bool
	}{
		"cancelled": {[]*report{
			reportOf(kindGivenUp, 1, cancelled, 1),
			reportOf(kindCancelled, 1, cancelled, 1),
		}, false},
		"aborted by a rank that cancels": {[]*report{
			reportOf(kindGivenUp, 1, aborted, 1),
			reportOf(kindCancelled, 1, cancelled, 1),
		}, false},
		"blame passed on through another communicator": {[]*report{
			reportOf(kindGivenUp, 1, aborted, 1), on("other", reportOf(kindGivenUp, 1, cancelled, 2)),
			on("other", reportOf(kindCancelled, 1, cancelled, 2)),
		}, false},
		"by a rank that learned of the abort on the same communicator": {[]*report{
			reportOf(kindGivenUp, 1, aborted, 1), reportOf(kindGivenUp, 1, cancelled, 2),
			reportOf(kindCancelled, 1, cancelled, 2),
		}, true},
		"cancelled on another communicator": {[]*report{
			reportOf(kindGivenUp, 1, cancelled, 1),
			on("other", reportOf(kindCancelled, 1, cancelled, 1)),
		}, true},
		"cancelled in the Split that made the communicator": {[]*report{
			on(madeBy(17)+"color 0", reportOf(kindGivenUp, 1, cancelled, 1)),
			during("split , 3 bytes", 17, reportOf(kindCancelled, 1, cancelled, 1)),
		}, false},
		"cancelled in another Split": {[]*report{
			on(madeBy(17)+"color 0", reportOf(kindGivenUp, 1, cancelled, 1)),
			during("split , 3 bytes", 1, reportOf(kindCancelled, 1, cancelled, 1)),
		}, true},
		"cancelled in another call than the Split": {[]*report{
			on(madeBy(17)+"color 0", reportOf(kindGivenUp, 1, cancelled, 1)),
			during("barrier", 17, reportOf(kindCancelled, 1, cancelled, 1)),
		}, true},
		"by a rank that only gave up": {[]*report{
			reportOf(kindGivenUp, 1, cancelled, 1), reportOf(kindGivenUp, 1, cancelled, 2),
			reportOf(kindCancelled, 1, cancelled, 2),
		}, true},
		"by a rank that is well": {[]*report{reportOf(kindGivenUp, 1, aborted, 1)}, true},
		"by no single rank":      {[]*report{reportOf(kindGivenUp, 1, aborted, -1)}, true},
		"in another epoch": {[]*report{
			reportOf(kindGivenUp, 1, cancelled, 1),
			reportOf(kindCancelled, 2, cancelled, 1),
		}, true},
		"Subset given up by a rank whose context ended": {[]*report{
			on(madeBy(17)+"subset", reportOf(kindNoComm, 1, gaveUp, 1)),
			on(madeBy(17)+"subset", reportOf(kindCommCancelled, 1, gaveUp, 1)),
		}, false},
		"Subset given up by a rank that cancelled another one": {[]*report{
			on(madeBy(17)+"subset", reportOf(kindNoComm, 1, gaveUp, 1)),
			on(madeBy(18)+"subset", reportOf(kindCommCancelled, 1, gaveUp, 1)),
		}, true},
		"Subset given up by a rank that did not cancel": {[]*report{
			on(madeBy(17)+"subset", reportOf(kindNoComm, 1, gaveUp, 1)),
			on(madeBy(17)+"subset", reportOf(kindNoComm, 1, gaveUp, 2)),
			on(madeBy(17)+"subset", reportOf(kindCommCancelled, 1, gaveUp, 2)),
		}, true},
		"Subset given up by a rank that cancelled another call": {[]*report{
			on(madeBy(17)+"subset", reportOf(kindNoComm, 1, gaveUp, 1)),
			reportOf(kindCancelled, 1, cancelled, 1),
		}, true},
		"subset aborted with all other communicators": {[]*report{
			on(madeBy(17)+"subset", reportOf(kindNoComm, 1, aborted, 1)),
			reportOf(kindCancelled, 1, cancelled, 1),
		}, false},
		"cancelled Subset breaks another communicator": {[]*report{
			reportOf(kindGivenUp, 1, aborted, 1),
			on(madeBy(17)+"subset", reportOf(kindCommCancelled, 1, gaveUp, 1)),
		}, true},
		"by itself, in two epochs": {[]*report{
			reportOf(kindCancelled, 1, cancelled, 0),
			reportOf(kindCancelled, 2, cancelled, 1),
		}, false},
	} {
		a := aborts{}
		for rank, n := range tt.reports {
			a.add(rank, n)
		}
		if err := a.judge(func(int, int) bool { return false }); (err != nil) != tt.bad {
			t.Errorf("%s: %v, want a violation: %v", name, err, tt.bad)
		}
	}
}

// A communicator may break because a member closed it early or left the job, and only then.
func TestJudgeLeave(t *testing.T) {
	const closed, aborted = "allcast: failed: closed the communicator: rank 1", "allcast: failed: aborted: rank 1"
	const sub, other = "call 17, color 0", "call 18, subset"
	on := func(comm, kind string, epoch int, text string, blamed ...int) *report {
		return &report{Kind: kind, Epoch: epoch, Text: text, Ranks: blamed, Comm: comm}
	}
	none := func(int, int) bool { return false }
	gone := func(who, since int) func(int, int) bool {
		return func(rank, epoch int) bool { return rank == who && epoch >= since }
	}
	early := on(sub, kindClosed, 1, "")
	failed := on(sub, kindNoComm, 1, closed, 1)
	cancels := func(comm string) []*report { return []*report{on(comm, kindCommCancelled, 1, "", 1)} }
	for name, tt := range map[string]struct {
		reports [3][]*report // by rank
		left    func(rank, epoch int) bool
		bad     bool
	}{
		"closed early":                       {[3][]*report{{failed}, {early}}, none, false},
		"closed after all its calls":         {[3][]*report{{failed}}, none, true},
		"closed early in another epoch":      {[3][]*report{{failed}, {on(sub, kindClosed, 2, "")}}, none, true},
		"another communicator, closed early": {[3][]*report{{failed}, {on(other, kindClosed, 1, "")}}, none, true},
		"closed early by a third rank":       {[3][]*report{{failed}, {}, {early}}, none, true},
		"closed by a rank that dropped it because of a third rank": {[3][]*report{
			{failed}, {on(sub, kindNoComm, 1, closed, 2)}, {early},
		}, none, true},
		"closed by a rank that cancelled another communicator": {[3][]*report{
			{failed}, {on("main", kindCancelled, 1, aborted, 1)},
		}, none, true},
		"closed early, and then its messages fail": {[3][]*report{
			{failed}, {early, on(sub, kindNoComm, 1, closed, 1)},
		}, none, false},
		"a rank's messages fail, and nobody closed it": {[3][]*report{
			{failed}, {on(sub, kindNoComm, 1, closed, 1)},
		}, none, true},
		"the main one, after a Subset was closed early": {[3][]*report{
			{on("main", kindGivenUp, 1, aborted, 1)}, {on(other, kindClosed, 1, "")},
		}, none, true},
		"aborted by a rank that lost another": {[3][]*report{
			{on(sub, kindNoComm, 1, aborted, 1)}, {on("main", kindLost, 1, "", 2)},
		}, gone(2, 1), false},
		"closed by a rank that lost another": {[3][]*report{
			{failed}, {on("main", kindLost, 1, "", 2)},
		}, gone(2, 1), true},
		"closed by a rank that left":                {[3][]*report{{failed}}, gone(1, 1), false},
		"closed by a rank that left later":          {[3][]*report{{failed}}, gone(1, 2), true},
		"closed by no rank":                         {[3][]*report{{on(sub, kindNoComm, 1, closed, -1)}}, none, true},
		"cancelled on that communicator":            {[3][]*report{{failed}, cancels(sub)}, none, false},
		"cancelled on another communicator":         {[3][]*report{{failed}, cancels(other)}, none, true},
		"closed early, reported by the closer only": {[3][]*report{{}, {early}}, none, false},
	} {
		a := aborts{}
		for rank, list := range tt.reports {
			for _, n := range list {
				a.add(rank, n)
			}
		}
		if err := a.judge(tt.left); (err != nil) != tt.bad {
			t.Errorf("%s: %v, want a violation: %v", name, err, tt.bad)
		}
	}
}

// A rank that was told to leave may be blamed, must end as it was told, and cannot have failed in an earlier epoch.
func TestJudgeOrders(t *testing.T) {
	reports := func(rank int, kind string, ranks ...int) event {
		return event{rank: rank, report: &report{Kind: kind, Epoch: 2, Ranks: ranks, Comm: "main"}}
	}
	ended := event{rank: 3, end: errEnded}
	for _, tt := range []struct {
		name, order string
		events      []event
		bad         bool
	}{
		{"leaves", orderExit, []event{reports(0, kindLost, 3), reports(3, kindEnd), ended}, false},
		{"dies instead of leaving", orderExit, []event{ended}, true},
		{"is excluded instead of leaving", orderExit, []event{reports(3, kindExcluded, 3), ended}, true},
		{"ends", orderEnd, []event{ended, reports(0, kindLost, 3), reports(0, kindEpoch, 0, 1, 2)}, false},
		{"panics", orderPanic, []event{ended}, false},
		{"another rank is lost", orderPanic, []event{ended, reports(0, kindLost, 2)}, true},
		{"another rank is left out", orderPanic, []event{ended, reports(0, kindEpoch, 0, 1)}, true},
		{"leaves with more than it had", orderExit, []event{{
			rank: 3, report: &report{Kind: kindEnd, tally: tally{usage: usage{Files: ownFiles + 1}}},
		}}, true},
	} {
		r := &runner{
			cfg: &config{mode: modeLeave}, start: time.Now(), sum: newSummary(), epochs: map[int][]int{}, aborts: aborts{},
		}
		for n := range 4 {
			r.ranks = append(r.ranks, &process{rank: n, blamedAt: map[int]time.Time{}})
		}
		r.begin(r.ranks[3], tt.order, true)
		for _, e := range tt.events {
			r.handle(e)
		}
		if bad := r.violated != nil; bad != tt.bad {
			t.Errorf("%s: %v, want a violation: %v", tt.name, r.violated, tt.bad)
		}
		r.ranks[3].epoch = 2
		for rank, want := range map[int]bool{-1: false, 0: false, 3: true, 4: false} {
			if got := r.hasLeft(rank, 2); got != want {
				t.Errorf("rank %d has left: %v, want %v", rank, got, want)
			}
		}
		if r.hasLeft(3, 1) {
			t.Error("rank 3 has left in epoch 1, but it was well until epoch 2")
		}
	}
}

// The two ends of a pipe agree on the order to leave, and on the end of a generation.
func TestObey(t *testing.T) {
	r := &rank{}
	r.obey(strings.NewReader("exit 1.5s\n"))
	if d := r.leaveWithin.Load(); d == nil || *d != 1500*time.Millisecond || !r.stopping.Load() {
		t.Errorf("leaves within %v, stopping %v; want 1.5s and true", d, r.stopping.Load())
	}
}

// All ranks compute the same script, and the script contains every kind of step.
func TestScript(t *testing.T) {
	for mode, all := range map[mode]odds{
		modeFaults: allSteps, modeCancel: allSteps, modeLeave: allSteps, modeLoss: multicastSteps,
	} {
		s := script{mode: mode, seed: 7, generation: 3, epoch: 2, maxBytes: 1 << 20}
		seen := map[string]bool{}
		for call := range uint64(2000) {
			st := s.at(call)
			if st != s.at(call) {
				t.Fatalf("%s: call %d differs between two computations", mode, call)
			}
			if st.size < 0 || st.size > s.maxBytes {
				t.Fatalf("%s: call %d moves %d bytes", mode, call, st.size)
			}
			lossy := st.size >= s.maxBytes/8 && st.algo == "mcast" && st.part(1).algo == "mcast"
			if mode == modeLoss && !lossy {
				t.Fatalf("%s: call %d moves %d bytes by %s", mode, call, st.size, st.algo)
			}
			seen[st.do] = true
		}
		for _, o := range all {
			if o.do != "dup" && !seen[o.do] { // a dup is a split
				t.Errorf("%s: the script has no %s", mode, o.do)
			}
		}
	}
}

// All ranks compute the same members of a Subset, and some rank is not a member now and then.
func TestSubsetMembers(t *testing.T) {
	sizes := map[int]bool{}
	for i := range uint64(200) {
		st := step{root: i * 0x9e3779b97f4a7c15}
		members := st.members(5)
		if !slices.Equal(members, st.members(5)) {
			t.Errorf("members %v and %v", members, st.members(5))
		}
		sizes[len(members)] = true
	}
	if len(sizes) != 5 {
		t.Errorf("sizes of subsets: %v, want 1 to 5", sizes)
	}
}

// The contributions differ by rank, call and epoch, so that a wrong byte is detected.
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
				t.Errorf("two contributions are %x", b)
			}
		}
		for i := range base {
			base[i]++
			if s.pattern(5, 1).check(base) == nil {
				t.Errorf("%d bytes: check does not detect that byte %d is wrong", n, i)
			}
			base[i]--
		}
	}
}
