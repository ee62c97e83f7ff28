//go:build verbs

package verbs_test

import (
	"fmt"
	"slices"
	"testing"
)

// checkLinks checks the number of queue pairs of each rank.
func checkLinks(t *testing.T, ends []*end, want ...int) {
	t.Helper()
	for i, e := range ends {
		if got := e.Links(); got != want[i] {
			t.Errorf("rank %d has %d queue pairs, want %d", i, got, want[i])
		}
	}
}

// A rank has queue pairs only for peers to which one of the two has sent something.
func TestLinksOnDemand(t *testing.T) {
	dummyNet(t)
	ends := ranks(t, 5)
	checkLinks(t, ends, 0, 0, 0, 0, 0)
	ends[0].Send(3, make([]byte, 7))
	ends[3].ev.wait(t, "message 0 7")
	checkLinks(t, ends, 1, 0, 0, 1, 0)
	ends[3].Send(0, make([]byte, 8)) // on the same connection
	ends[0].ev.wait(t, "message 3 8")
	ends[4].Send(3, make([]byte, 9))
	ends[3].ev.wait(t, "message 4 9")
	checkLinks(t, ends, 1, 0, 0, 2, 1)
}

// Two ranks that call each other at the same time have one connection, and no message is lost or overtaken.
func TestLinksBothCall(t *testing.T) {
	dummyNet(t)
	for range 10 {
		a, b := pair(t)
		for n := 1; n <= 20; n++ {
			a.Send(1, make([]byte, n))
			b.Send(0, make([]byte, n))
		}
		a.ev.wait(t, "message 1 20")
		b.ev.wait(t, "message 0 20")
		checkLinks(t, []*end{a, b}, 1, 1)
	}
}

// Lost introductions are repeated, whichever they are.
func TestLinksLoss(t *testing.T) {
	dummyNet(t)
	for _, lost := range [][2]int{{1, 0}, {0, 1}, {2, 0}, {0, 2}, {1, 1}, {3, 3}} {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			a, b := pair(t)
			a.LoseIntroductions(lost[0])
			b.LoseIntroductions(lost[1])
			a.Send(1, make([]byte, 1))
			b.ev.wait(t, "message 0 1")
			b.Send(0, make([]byte, 2))
			a.ev.wait(t, "message 1 2")
		})
	}
}

// After a ring Allgather and one by multicast, a rank is connected to its partners in barriers and on the ring.
func TestLinksOfJob(t *testing.T) {
	const size = 8
	for _, v := range finish(t, start(t, size, dummyNet(t), "links")) {
		var want []int
		for _, d := range []int{1, 2, 4, size - 1} {
			for _, p := range []int{(v.Rank + d) % size, (v.Rank + size - d) % size, v.Rank ^ d} {
				if p < size && !slices.Contains(want, p) {
					want = append(want, p)
				}
			}
		}
		if slices.ContainsFunc(v.Peers, func(p int) bool { return !slices.Contains(want, p) }) || len(v.Peers) >= size-1 {
			t.Errorf("rank %d is connected to %v, want some of %v", v.Rank, v.Peers, want)
		}
		t.Logf("rank %d: %v", v.Rank, v.Peers)
	}
}
