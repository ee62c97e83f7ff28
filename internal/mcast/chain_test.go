package mcast

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestEverySenderIsInOneChain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t, 40, 4)
		g := mustPlan(t, s, mustLayout(t, 0))[0]
		var all []int
		shortest, longest := len(s.Counts), 0
		for _, chain := range g.chains.members {
			shortest, longest = min(shortest, len(chain)), max(longest, len(chain))
			for p, i := range chain {
				all = append(all, g.senders[i])
				pred, succ := -1, -1
				if p > 0 {
					pred = g.senders[chain[p-1]]
				}
				if p+1 < len(chain) {
					succ = g.senders[chain[p+1]]
				}
				if a, b := g.neighbours(g.senders[i]); a != pred || b != succ {
					t.Fatalf("rank %d: between %d and %d, want %d and %d", g.senders[i], a, b, pred, succ)
				}
			}
		}
		slices.Sort(all)
		if !slices.Equal(all, g.senders) {
			t.Fatalf("chains hold %v, want %v", all, g.senders)
		}
		if s.Groups == nil && g.Chains() > 0 && (longest-shortest > 1 || shortest == 0) {
			t.Fatalf("chains of %d to %d ranks", shortest, longest)
		}
		if stepsOf(g) != longest {
			t.Fatalf("%d steps, the longest chain has %d", stepsOf(g), longest)
		}
		for r, n := range s.Counts {
			if pred, succ := g.neighbours(r); n == 0 && (pred != -1 || succ != -1) {
				t.Fatalf("rank %d sends nothing and stands between %d and %d", r, pred, succ)
			}
		}
	})
}

// The steps of the schedule are the columns of the chains: each sender is active
// in exactly one of them, and at most one of each chain is.
func TestActiveGroupsPartitionTheSenders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := mustPlan(t, drawShape(t, 40, 3), mustLayout(t, 0))[0]
		var all []int
		for step := range stepsOf(g) {
			group := activeGroup(g, step)
			if len(group) > g.Chains() || len(group) == 0 {
				t.Fatalf("step %d: %d active of %d chains", step, len(group), g.Chains())
			}
			all = append(all, group...)
		}
		slices.Sort(all)
		if !slices.Equal(all, g.senders) || activeGroup(g, stepsOf(g)) != nil {
			t.Fatalf("active in all steps: %v, want %v", all, g.senders)
		}
	})
}

// Chains given by the topology are used as they are, without ranks that send nothing.
func TestGroupsAreTakenAsGiven(t *testing.T) {
	s := allgather(6, 4, 4, 1, 1)
	s.Groups = [][]int{{5, 3, 1}, {}, {0, 2}, {4}}
	s.Counts[3], s.Counts[4] = 0, 0
	g := oneRound(t, s)
	want := [][]int{{5, 0}, {1, 2}}
	if g.Chains() != 2 || stepsOf(g) != 2 {
		t.Fatalf("%d chains of %d steps", g.Chains(), stepsOf(g))
	}
	for step, ranks := range want {
		if got := activeGroup(g, step); !slices.Equal(got, ranks) {
			t.Errorf("step %d: %v, want %v", step, got, ranks)
		}
	}
}

// Credit rests on this: positions number all chunks, and grow along each chain.
func TestPositionIsABijection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := mustPlan(t, drawShape(t, 24, 12), mustLayout(t, 0))[0]
		c := &g.chains
		seen := make([]bool, g.Chunks())
		for k, n := range c.length {
			for j := range n {
				at := c.position(k, j)
				if at >= uint64(len(seen)) || seen[at] {
					t.Fatalf("chunk %d of chain %d: position %d of %d", j, k, at, len(seen))
				}
				seen[at] = true
				if j > 0 && at <= c.position(k, j-1) {
					t.Fatalf("chunk %d of chain %d: position %d, the one before it %d", j, k, at, c.position(k, j-1))
				}
			}
		}
		if i := slices.Index(seen, false); i >= 0 {
			t.Fatalf("no chunk has position %d", i)
		}
	})
}

// before is the number of chunks that a chain sends before a member.
func TestChunksBefore(t *testing.T) {
	s := allgather(5, 0, 4, 2, 1)
	s.Counts = []int64{4, 9, 1, 16, 3} // 1, 3, 1, 4, 1 chunks; chains {0, 1} and {2, 3, 4}
	g := oneRound(t, s)
	if want := []uint64{0, 1, 0, 1, 5}; !slices.Equal(g.chains.before, want) {
		t.Errorf("before: %v, want %v", g.chains.before, want)
	}
	if want := []uint64{4, 6}; !slices.Equal(g.chains.length, want) {
		t.Errorf("lengths: %v, want %v", g.chains.length, want)
	}
}

// activeGroup returns the ranks that multicast at a step of the schedule, in chain order.
func activeGroup(g *Geometry, step int) (ranks []int) {
	for _, chain := range g.chains.members {
		if step < len(chain) {
			ranks = append(ranks, g.senders[chain[step]])
		}
	}
	return ranks
}

// stepsOf returns the length of the longest chain.
func stepsOf(g *Geometry) (n int) {
	for _, chain := range g.chains.members {
		n = max(n, len(chain))
	}
	return n
}
