package p2p_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/p2p"
)

// When a rank stops, each rank that does not end waits for another rank that does not end, and so on up
// to the rank that stopped.
func TestWaitingOnLeadsToWhoStopped(t *testing.T) {
	everyAlgorithm(t, func(x subject) {
		t, kind, algo := x.T, x.kind, x.algo
		for size := 2; size <= 14; size++ {
			c := call{algo, p2p.Spec{Kind: kind, Size: size, Root: size / 3, Segment: 4}}.sized(10)
			for stop := range size {
				w, _ := c.cluster(t, uint64(stop))
				w.Drain(w.Rand.IntN(10 * size))
				w.Kill(w.ranks[stop].at)
				w.Drain(forever)
				checkWaiting(w, stop)
			}
		}
	})
}

func checkWaiting(w *cluster[byte], stop int) {
	for r, m := range w.ranks {
		at, path := r, []int{r}
		for !m.closed && at != stop {
			at = w.ranks[at].op.WaitingOn()
			if path = append(path, at); len(path) > len(w.ranks) || w.ranks[at].closed {
				w.Failf("rank %d stopped, but the ranks that wait for each other are %v", stop, path)
			}
		}
	}
}

// A rank that waits only for its own fabric names itself.
func TestWaitingOnItself(t *testing.T) {
	everyAlgorithm(t, func(x subject) {
		t, kind, algo := x.T, x.kind, x.algo
		c := call{algo, p2p.Spec{Kind: kind, Size: 7}}.sized(10)
		for rank := range c.Size {
			s := newSolo(c.plan(t, rank))
			s.start()
			for from := range c.Size {
				s.ready(from)
			}
			nth := map[int32]uint32{}
			for _, r := range s.plan.Recvs {
				s.takes(t, int(r.From), nth[r.From], r, false)
				nth[r.From]++
			}
			if s.WaitingOn() != rank || s.Missing(nil) != "nothing" {
				t.Errorf("%v: rank %d has all, but waits for rank %d and misses %s", c, rank, s.WaitingOn(), s.Missing(nil))
			}
			s.heard()
			if s.WaitingOn() != rank {
				t.Errorf("%v: rank %d is %v, but waits for rank %d", c, rank, s.Phase(), s.WaitingOn())
			}
		}
	})
}

// Missing as people read it, for a ring that got its first block and not the next.
func TestMissing(t *testing.T) {
	s := newSolo(call{"ring", p2p.Spec{Kind: p2p.Allgather, Size: 4}}.sized(10).plan(t, 1))
	s.start()
	for _, want := range []string{
		"3 of 3 pieces, first bytes 0-9 from rank 0",
		"2 of 3 pieces, first bytes 30-39 from rank 0",
		"1 of 3 pieces, first bytes 20-29 from rank 0",
	} {
		if got := s.Missing(nil); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		n := 3 - int(want[0]-'0')
		s.takes(t, 0, uint32(n), s.plan.Recvs[n], false)
	}
	if got := s.Missing(nil); got != "nothing" {
		t.Errorf("%q when all is there", got)
	}
}

// A piece without bytes has no first and last byte; a barrier has only such pieces.
func TestMissingWithoutBytes(t *testing.T) {
	everyAlgorithm(t, func(x subject) {
		t, kind, algo := x.T, x.kind, x.algo
		c := call{algo, p2p.Spec{Kind: kind, Size: 3}}.sized(0)
		rank := 1
		for len(c.plan(t, rank).Recvs) == 0 {
			rank-- // a leaf only sends
		}
		s := newSolo(c.plan(t, rank))
		s.start()
		got := s.Missing(nil)
		if m := regexp.MustCompile(`\d+--\d+`).FindString(got); m != "" || !strings.Contains(got, "from rank ") {
			t.Errorf("%v: %q", c, got)
		}
	})
}
