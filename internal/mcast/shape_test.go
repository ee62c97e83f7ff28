package mcast

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/allcast/allcast/internal/wire"
)

func TestBadShapes(t *testing.T) {
	good := func() Shape { return allgather(4, 10, 4, 2, 1) }
	for name, spoil := range map[string]func(*Shape){
		"no kind":                  func(s *Shape) { s.Kind = 0 },
		"unknown kind":             func(s *Shape) { s.Kind = 3 },
		"no ranks":                 func(s *Shape) { s.Counts = nil },
		"chunk of 0":               func(s *Shape) { s.Chunk = 0 },
		"negative chunk":           func(s *Shape) { s.Chunk = -1 },
		"chunk above 1 GiB":        func(s *Shape) { s.Chunk = 1<<30 + 1 },
		"no chains":                func(s *Shape) { s.Chains = 0 },
		"negative chains":          func(s *Shape) { s.Chains = -3 },
		"no subgroups":             func(s *Shape) { s.Subgroups = 0 },
		"negative streams":         func(s *Shape) { s.Streams = -1 },
		"too many streams":         func(s *Shape) { s.Streams = wire.MaxStreams + 1 },
		"too many subgroups":       func(s *Shape) { s.Subgroups = wire.MaxSubgroups + 1 },
		"negative size":            func(s *Shape) { s.Counts[2] = -1 },
		"sum overflows":            func(s *Shape) { s.Counts[0], s.Counts[3] = math.MaxInt64/2, math.MaxInt64/2+1 },
		"broadcast by all":         func(s *Shape) { s.Kind = wire.Broadcast },
		"root too large":           func(s *Shape) { *s = broadcast(4, 0, 10, 4, 1); s.Root = 4 },
		"negative root":            func(s *Shape) { *s = broadcast(4, 0, 10, 4, 1); s.Root = -1 },
		"a group twice":            func(s *Shape) { s.Groups = [][]int{{0, 1}, {2, 3}, {2, 3}} },
		"a rank twice in a group":  func(s *Shape) { s.Groups = [][]int{{0, 1, 1}, {2, 3}} },
		"a rank in no group":       func(s *Shape) { s.Groups = [][]int{{0, 1}, {3}} },
		"groups without ranks":     func(s *Shape) { s.Groups = [][]int{} },
		"a rank that is not there": func(s *Shape) { s.Groups = [][]int{{0, 1}, {2, 4}} },
		"a negative rank":          func(s *Shape) { s.Groups = [][]int{{0, 1}, {2, -1}} },
	} {
		t.Run(name, func(t *testing.T) {
			s := good()
			spoil(&s)
			plan, err := Plan(s, mustLayout(t, 0))
			if !errors.Is(err, ErrShape) || plan != nil {
				t.Errorf("%d rounds, error %v; want ErrShape", len(plan), err)
			}
		})
	}
	s := good()
	s.Chains, s.Groups = 0, [][]int{{3, 2}, {}, {1, 0}}
	if _, err := Plan(s, mustLayout(t, 0)); err != nil {
		t.Errorf("with groups the number of chains is not needed: %v", err)
	}
}

// Seventeen senders cannot share sixteen PSNs, not even in rounds.
func TestMoreSendersThanPSNs(t *testing.T) {
	l := mustLayout(t, 4)
	if _, err := Plan(allgather(17, 1, 1, 1, 8), l); !errors.Is(err, ErrShape) {
		t.Errorf("17 senders: %v", err)
	}
	s := allgather(17, 1, 1, 1, 8)
	s.Counts[3] = 0
	checkCover(t, s, mustPlan(t, s, l), l)
}

func TestClamping(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t, 12, 12)
		s.Groups = nil
		s.Chains = rapid.IntRange(1, 40).Draw(t, "M")
		s.Subgroups = rapid.IntRange(1, wire.MaxSubgroups).Draw(t, "S")
		s.Streams = rapid.IntRange(0, 40).Draw(t, "T")
		l := mustLayout(t, 5)
		var largest int64
		for _, n := range s.Counts {
			largest = max(largest, (n+int64(s.Chunk)-1)/int64(s.Chunk))
		}
		for round, g := range mustPlan(t, s, l) {
			senders := 0
			for r := range s.Counts {
				for sub := range g.Streams() {
					if _, n := g.Block(sub, r); n > 0 {
						senders++
						break
					}
				}
			}
			if want := min(s.Chains, senders); g.Chains() != want {
				t.Fatalf("round %d: %d chains for %d senders, want %d", round, g.Chains(), senders, want)
			}
			if want := g.Subgroups() * max(1, min(s.Streams, g.Chains())); g.Streams() != want {
				t.Fatalf("round %d: %d streams, want %d", round, g.Streams(), want)
			}
			if want := max(1, min(int64(s.Subgroups), largest)); int64(g.Subgroups()) != want {
				t.Fatalf("round %d: %d subgroups, want %d", round, g.Subgroups(), want)
			}
		}
	})
}

// Every way in which two calls can differ shows in the digest.
func TestDigestsDiffer(t *testing.T) {
	base := func() Shape { return allgather(4, 100, 8, 2, 2) }
	seen := map[uint64]string{}
	add := func(name string, s Shape, psnBits int) {
		for round, g := range mustPlan(t, s, mustLayout(t, psnBits)) {
			if other, twice := seen[g.Digest()]; twice {
				t.Errorf("%s, round %d: the digest of %s", name, round, other)
			}
			seen[g.Digest()] = name
		}
	}
	add("base", base(), 0)
	for name, change := range map[string]func(*Shape){
		"bytes of one rank": func(s *Shape) { s.Counts[3]++ },
		"bytes swapped":     func(s *Shape) { s.Counts[0], s.Counts[1] = 99, 101 },
		"bytes swapped too": func(s *Shape) { s.Counts[0], s.Counts[1] = 101, 99 },
		"more ranks":        func(s *Shape) { s.Counts = append(s.Counts, 0) },
		"chunk":             func(s *Shape) { s.Chunk = 7 },
		"chains":            func(s *Shape) { s.Chains = 1 },
		"subgroups":         func(s *Shape) { s.Subgroups = 3 },
		"streams":           func(s *Shape) { s.Streams = 2 },
		"chains placed":     func(s *Shape) { s.Groups = [][]int{{1, 0}, {2, 3}} },
		"broadcast":         func(s *Shape) { *s = broadcast(4, 0, 100, 8, 2) },
		"another root":      func(s *Shape) { *s = broadcast(4, 1, 100, 8, 2) },
		"empty from 0":      func(s *Shape) { *s = broadcast(4, 0, 0, 8, 1) },
		"empty from 1":      func(s *Shape) { *s = broadcast(4, 1, 0, 8, 1) },
		"empty allgather":   func(s *Shape) { *s = allgather(4, 0, 8, 2, 1) },
	} {
		s := base()
		change(&s)
		add(name, s, 0)
	}
	// Rounds of one call differ, too: a rank that is one behind must be told.
	long := allgather(4, 1000, 8, 2, 2)
	add("in rounds", long, 5)
}

// Ranks plan for themselves and must come to the same digest; what was asked for
// beyond the clamps does not count.
func TestDigestsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t, 8, 12)
		l := mustLayout(t, rapid.IntRange(wire.MinPSNBits, 12).Draw(t, "PSN bits"))
		a := mustPlan(t, s, l)
		again := s
		again.Counts = slices.Clone(s.Counts)
		again.Chains = max(1, a[0].Chains())
		again.Subgroups = a[0].Subgroups()
		b := mustPlan(t, again, l)
		if len(a) != len(b) {
			t.Fatalf("%d rounds and %d", len(a), len(b))
		}
		for i := range a {
			if a[i].Digest() != b[i].Digest() {
				t.Fatalf("round %d: digests differ", i)
			}
		}
	})
}
