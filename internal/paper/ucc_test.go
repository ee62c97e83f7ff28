package paper

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/sim"
)

// The simulator verifies the data of each run.
func TestSchedulesOfUCCDeliver(t *testing.T) {
	for size := 2; size <= 24; size++ {
		for name, plan := range map[string]func(p2p.Spec) (*p2p.Plan, error){
			"own radix": uccKnomial(0), "radix 2": uccKnomial(2), "radix 4": uccKnomial(4),
			"tree in order": uccDoubleTree(true), "tree": uccDoubleTree(false),
		} {
			cfg := sim.Config{
				Op: "broadcast", Algo: "knomial", Topology: mustParse(fmt.Sprintf("star:%d", size)), Bytes: 20001, Seed: 1,
				Schedule: sim.Schedule{Plan: plan},
			}
			if _, err := simulate(t.Context(), cfg); err != nil {
				t.Errorf("%s with %d ranks: %v", name, size, err)
			}
		}
	}
}

func TestRadixOfUCC(t *testing.T) {
	for size, want := range map[int]int{188: 47, 64: 4, 27: 3, 12: 4, 2: 2} {
		if got := uccRadix(size); got != want {
			t.Errorf("radix %d for %d ranks, want %d", got, size, want)
		}
	}
	if core := uccCore(188, 4); core != 128 {
		t.Errorf("core of %d ranks, want 128", core)
	}
}

// The parent of a rank has it as a child, in both trees, and a rank has children in at most one of them, apart from
// the last rank of a tree.
func TestDoubleTree(t *testing.T) {
	for _, size := range []int{2, 3, 7, 8, 13, 188} {
		inner := 0
		for rank := range size {
			for _, tree := range []func(rank, size int) node{inOrderTree, mirrored} {
				n := tree(rank, size)
				if n.parent < 0 {
					if n.top != rank {
						t.Errorf("%d ranks: rank %d has no parent, and %d is at the top", size, rank, n.top)
					}
				} else if !slices.Contains(tree(n.parent, size).children, rank) {
					t.Errorf("%d ranks: rank %d is no child of %d", size, rank, n.parent)
				}
			}
			if len(inOrderTree(rank, size).children) > 0 && len(mirrored(rank, size).children) > 0 {
				inner++
			}
		}
		if inner > 1 {
			t.Errorf("%d ranks: %d have children in both trees", size, inner)
		}
	}
}

func TestFitCost(t *testing.T) {
	sweep := []timing{{Time: 100}, {Cost: 2 * time.Microsecond, Time: 300}}
	if cost, err := fitCost(sweep, 200); err != nil || cost != time.Microsecond {
		t.Errorf("cost %v, %v", cost, err)
	}
	if _, err := fitCost(sweep, 400); err == nil {
		t.Error("a time beyond the sweep has a cost")
	}
}

// UCC forwards the second half only after the first, which takes about twice as long as without this order.
func TestOrderOfHalvesCostsTime(t *testing.T) {
	took := func(inOrder bool) float64 {
		r, err := simulate(t.Context(), sim.Config{
			Op: "broadcast", Algo: "binary", Topology: mustParse("star:32"), Bytes: 256 << 10, Seed: 1,
			Schedule: sim.Schedule{Plan: uccDoubleTree(inOrder)},
		})
		if err != nil {
			t.Fatal(err)
		}
		return r.TimeUS
	}
	if slow, quick := took(true), took(false); slow < 1.3*quick {
		t.Errorf("%.0f us in order, %.0f us otherwise", slow, quick)
	}
}
