package topology

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// The traversals of the paper's Figure 2 (docs/claims.md) and of its testbed, counted on the graph.
func TestTraversals(t *testing.T) {
	for _, c := range []struct {
		spec               string
		tree, ring, linear int64
	}{
		{"star:1", 0, 0, 0},
		{"star:2", 4, 4, 4},
		{"fat-tree3:1,2", 0, 0, 0},
		{"fat-tree:188,12,6", 37600, 74800, 135080},
		{"fat-tree3:1024,32", 1118208, 2234232, 5732352},
	} {
		g := mustParse(t, c.spec)
		tree, ring, linear := g.TreeTraversals(), g.RingTraversals(), sumOfHops(g)
		if tree != c.tree || ring != c.ring || linear != c.linear {
			t.Errorf("%s: tree %d, ring %d, linear %d; want %d, %d, %d", c.spec, tree, ring, linear, c.tree, c.ring, c.linear)
		}
	}
	g := mustParse(t, "fat-tree:188,12,6")
	if r := float64(g.RingTraversals()) / float64(g.TreeTraversals()); math.Abs(r-1.99) > 0.005 {
		t.Errorf("the ring crosses %.3f times as many links as multicast, want 1.99", r)
	}
}

// sumOfHops is the traffic of sending each block to each host separately.
func sumOfHops(g *Graph) (n int64) {
	for src := range g.Hosts {
		for dst := range g.Hosts {
			n += int64(g.Hops(src, dst))
		}
	}
	return n
}

// The counts equal those of a walk that moves every block link by link.
func TestTraversalsAgainstWalks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawPlaced(t, 64)
		var tree, ring, linear int64
		shared := g.Tree(0)
		for src := range g.Hosts {
			crossed, _, _ := flood(g, shared, src)
			for _, n := range crossed {
				tree += int64(n)
			}
			for step := range g.Hosts - 1 {
				at := (src + step) % g.Hosts
				ring += int64(walk(g, at, (at+1)%g.Hosts))
			}
			for dst := range g.Hosts {
				linear += int64(walk(g, src, dst))
			}
		}
		if tree != g.TreeTraversals() || ring != g.RingTraversals() || linear != sumOfHops(g) {
			t.Fatalf("%s: walked tree %d, ring %d, linear %d; counted %d, %d, %d", g.Name, tree, ring, linear,
				g.TreeTraversals(), g.RingTraversals(), sumOfHops(g))
		}
	})
}
