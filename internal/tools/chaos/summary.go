//go:build linux

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// summary holds the totals that are printed in the end.
type summary struct {
	generations int
	total       tally // counters, summed over all ranks
	shrinks     int
	noComms     int // communicators that failed because of another member, after which the rank went on
	closed      int // communicators that a rank closed while others may use them
	givenUp     int // calls that failed because another rank had aborted a communicator
	ownViews    int // reports of ranks that were cut off or stopped
	faults      map[string]int
	worst       map[string]time.Duration // by fault: maximum time to a verdict
	verdicts    map[string]int

	left, working usage // maxima after leaving, and while working
}

func newSummary() summary {
	return summary{faults: map[string]int{}, worst: map[string]time.Duration{}, verdicts: map[string]int{}}
}

func (s *summary) verdict(kind string, d time.Duration) {
	s.verdicts[kind]++
	s.worst[kind] = max(s.worst[kind], d)
}

func (s *summary) print(w io.Writer, took time.Duration) {
	_, _ = fmt.Fprintf(w, "%v, %d generations\n", took.Round(time.Second), s.generations)
	_, _ = fmt.Fprintf(w, "%d calls succeeded, summed over ranks; every byte of %.1f GB is right; %d chunks repaired\n",
		s.total.Calls, float64(s.total.Bytes)/1e9, s.total.Repaired)
	_, _ = fmt.Fprintf(w, "%d communicators made, %d shrunk, summed over ranks; "+
		"%d calls failed because another rank had given up first\n", s.total.Comms, s.shrinks, s.givenUp)
	if s.total.Cancelled+s.total.InTime+s.total.Unstarted > 0 {
		_, _ = fmt.Fprintf(w, "%d calls were cancelled by their context; %d completed before it ended; "+
			"%d did not start because it had ended; %d were withdrawn or awaited again; "+
			"%d communicators were closed early; %d failed on other members, which went on\n",
			s.total.Cancelled, s.total.InTime, s.total.Unstarted, s.total.Withdrawn, s.closed, s.noComms)
	}
	if s.total.Sums > 0 {
		_, _ = fmt.Fprintf(w, "aggregators made %d sums\n", s.total.Sums)
	}
	for _, kind := range slices.Sorted(maps.Keys(s.faults)) {
		_, _ = fmt.Fprintf(w, "%-14s %4d", kind, s.faults[kind])
		if n := s.verdicts[kind]; n > 0 {
			_, _ = fmt.Fprintf(w, "  named %d times, after %v at most", n, s.worst[kind].Round(time.Millisecond))
		}
		_, _ = fmt.Fprintln(w)
	}
	_, _ = fmt.Fprintf(w, "a rank had at most %d goroutines and %d files; after it had left, "+
		"at most %d and %d more than before it joined\n",
		s.working.Goroutines, s.working.Files, s.left.Goroutines, s.left.Files)
}
