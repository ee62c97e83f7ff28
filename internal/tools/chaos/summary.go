//go:build linux

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// summary is what is reported in the end.
type summary struct {
	generations int
	calls       uint64 // that ended well, on all ranks
	bytes       uint64
	repaired    uint64
	comms       uint64
	cancelled   uint64 // calls whose context ended before they did,
	inTime      uint64 // after they had,
	unstarted   uint64 // and before they began
	shrinks     int
	givenUp     int // calls that failed because another rank had given a communicator up
	own         int // what ranks said that were cut off or stopped
	faults      map[string]int
	worst       map[string]time.Duration // to a verdict, by kind
	verdicts    map[string]int

	goroutines, files         int // most after leaving
	workGoroutines, workFiles int // most before
}

func newSummary() summary {
	return summary{faults: map[string]int{}, worst: map[string]time.Duration{}, verdicts: map[string]int{}}
}

func (s *summary) verdict(kind string, d time.Duration) {
	s.verdicts[kind]++
	s.worst[kind] = max(s.worst[kind], d)
}

func (s *summary) add(ranks []*process) {
	for _, p := range ranks {
		s.calls += p.last.Calls
		s.bytes += p.last.Bytes
		s.repaired += p.last.Repaired
		s.comms += p.last.Comms
		s.cancelled += p.last.Cancelled
		s.inTime += p.last.InTime
		s.unstarted += p.last.Unstarted
	}
}

func (s *summary) print(w io.Writer, took time.Duration) {
	_, _ = fmt.Fprintf(w, "%v, %d generations\n", took.Round(time.Second), s.generations)
	_, _ = fmt.Fprintf(w, "%d calls ended well, summed over ranks; every byte of %.1f GB is right; %d chunks repaired\n", s.calls, float64(s.bytes)/1e9, s.repaired)
	_, _ = fmt.Fprintf(w, "%d communicators split, %d shrunk, summed over ranks; %d calls ended because another rank had given up first\n", s.comms, s.shrinks, s.givenUp)
	if s.cancelled+s.inTime+s.unstarted > 0 {
		_, _ = fmt.Fprintf(w, "%d calls were cancelled by their context; %d completed before it ended; %d did not start because it had\n", s.cancelled, s.inTime, s.unstarted)
	}
	for _, kind := range slices.Sorted(maps.Keys(s.faults)) {
		_, _ = fmt.Fprintf(w, "%-14s %4d", kind, s.faults[kind])
		if n := s.verdicts[kind]; n > 0 {
			_, _ = fmt.Fprintf(w, "  named %d times, after %v at most", n, s.worst[kind].Round(time.Millisecond))
		}
		_, _ = fmt.Fprintln(w)
	}
	_, _ = fmt.Fprintf(w, "a rank had %d goroutines and %d files at most, and %d and %d more after it had left than before it joined\n", s.workGoroutines, s.workFiles, s.goroutines, s.files)
}
