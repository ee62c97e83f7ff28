package p2p_test

import (
	"testing"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
)

// A rank ends only when all it deals with have said what they called: data may
// overtake that, and what a rank that called something else has sent must not
// pass for a result. Nor may a greeting come after the end, when nobody could
// tell any more whether it is a mismatch.
func TestEndsWhenAllHaveGreeted(t *testing.T) {
	everyAlgorithm(t, func(x subject) {
		t, kind, algo := x.T, x.kind, x.algo
		c := call{algo, p2p.Spec{Kind: kind, Size: 7, Root: 2}}.sized(10)
		for rank := range c.Size {
			s := newSolo(c.plan(t, rank))
			s.start()
			sendsTo := map[int32]bool{}
			for _, snd := range s.plan.Sends {
				sendsTo[snd.To] = true
				s.ready(int(snd.To))
			}
			late := map[int]bool{}
			for i, n := range numbers(s.plan) {
				r := s.plan.Recvs[i]
				s.takes(t, int(r.From), n, r, false)
				if !sendsTo[r.From] {
					late[int(r.From)] = true
				}
			}
			s.heard()
			for from := range late {
				if s.Phase() != step.Transfer || !late[s.WaitingOn()] {
					t.Fatalf("%v: rank %d is %v and waits for rank %d, but has not heard of %v",
						c, rank, s.Phase(), s.WaitingOn(), late)
				}
				s.ready(from)
				delete(late, from)
			}
			if s.Phase() != step.Closed {
				t.Fatalf("%v: rank %d is %v and waits for rank %d", c, rank, s.Phase(), s.WaitingOn())
			}
		}
	})
}

// What an algorithm does not look at may differ: it is no mismatch.
func TestDigestOfWhatCounts(t *testing.T) {
	for _, kind := range kinds {
		for _, algo := range p2p.Algorithms(kind) {
			c := call{algo, p2p.Spec{Kind: kind, Size: 4}}.sized(10)
			odd := c
			if !kind.Rooted() {
				odd.Root = 3
			}
			if kind.Blocks() || kind == p2p.Barrier {
				odd.Bytes = 77
			}
			if algo != "knomial" {
				odd.Radix = 5
			}
			if c.plan(t, 1).Digest != odd.plan(t, 1).Digest {
				t.Errorf("%v and %v are different calls", c, odd)
			}
			odd.Type = 9
			if c.plan(t, 1).Digest == odd.plan(t, 1).Digest {
				t.Errorf("%v: another type is the same call", c)
			}
		}
	}
}
