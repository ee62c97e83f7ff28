package mcast

import (
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/wire"
)

// runDigests runs an Allgather without losses, on which the memory of the ranks has these digests. The
// digest of a late rank is known only when nothing else is pending.
func runDigests(t *testing.T, seed uint64, enabled bool, late int, digests ...uint64) *cluster {
	t.Helper()
	w := newWorld(t, seed, len(digests), Limits{}, 16)
	c := w.open(allgather(len(digests), 100, 40, 1, 1), network{}, Config{Digest: enabled})
	c.digests = digests
	for _, m := range c.ranks {
		m.digest.Held = m.rank == late
	}
	w.Drain(100_000)
	for _, m := range c.ranks {
		m.digest.Held = false
	}
	w.Drain(100_000)
	slices.SortFunc(c.accused, func(a, b [2]int) int { return a[0] - b[0] })
	return c
}

func TestDigests(t *testing.T) {
	for _, x := range []struct {
		name    string
		digests []uint64
		accused [][2]int
	}{
		{"same", []uint64{7, 7, 7, 7}, nil},
		{"zero", []uint64{0, 0, 0}, nil},
		{"one differs", []uint64{7, 7, 8, 7}, [][2]int{{1, 2}, {2, 3}}},
		{"the first differs", []uint64{0, 7, 7}, [][2]int{{0, 1}, {2, 0}}},
		{"two ranks", []uint64{1, 2}, [][2]int{{0, 1}, {1, 0}}},
		{"all differ", []uint64{1, 2, 3}, [][2]int{{0, 1}, {1, 2}, {2, 0}}},
	} {
		for late := -1; late < len(x.digests); late++ {
			for seed := range uint64(3) {
				c := runDigests(t, seed, true, late, x.digests...)
				if !slices.Equal(c.accused, x.accused) {
					t.Errorf("%s, %d late, seed %d: %v", x.name, late, seed, c.accused)
				}
				for _, m := range c.ranks {
					accuses := slices.ContainsFunc(x.accused, func(a [2]int) bool { return a[0] == m.rank })
					if m.complete == accuses || m.digestAsked != 1 {
						t.Errorf("%s, %d late, seed %d: rank %d: complete %v, asked %d times",
							x.name, late, seed, m.rank, m.complete, m.digestAsked)
					}
				}
			}
		}
	}
}

// Without digests no rank is asked for one, and messages are as short as before.
func TestNoDigests(t *testing.T) {
	c := runDigests(t, 1, false, -1, 1, 2, 3)
	alone := runDigests(t, 1, true, -1, 5) // a rank alone has no rank to compare with
	for _, m := range append(c.ranks, alone.ranks...) {
		if !m.complete || m.digestAsked > 0 || m.c.accused != nil {
			t.Errorf("rank %d of %d: complete %v, asked %d times, accused %v",
				m.rank, len(m.c.ranks), m.complete, m.digestAsked, m.c.accused)
		}
	}
	if n := len(wire.AppendMsg(nil, &wire.Msg{Kind: wire.MsgFinal})); n != 13 { // kind, comm, seq
		t.Errorf("a Final has %d bytes", n)
	}
}

// Spans cover the whole buffer, in any number of rounds.
func TestSpans(t *testing.T) {
	s := Shape{Kind: wire.Allgather, Counts: []int64{100, 0, 37, 4000}, Chunk: 10, Chains: 1, Subgroups: 2}
	l := mustLayout(t, 4)
	var covered [100 + 37 + 4000]int
	plan := mustPlan(t, s, l)
	if len(plan) < 2 {
		t.Fatalf("only %d rounds", len(plan))
	}
	for _, g := range plan {
		var sum int64
		g.Spans(func(off, n int64) {
			sum += n
			for i := off; i < off+n; i++ {
				covered[i]++
			}
		})
		if sum != g.Bytes() {
			t.Errorf("spans of %d bytes in a round of %d", sum, g.Bytes())
		}
	}
	for i, n := range covered {
		if n != 1 {
			t.Fatalf("byte %d is in %d spans", i, n)
		}
	}
}
