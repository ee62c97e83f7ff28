package topology

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A hash spreads flows over all ways up, and seeds give different routes. Routes survive Place and Oversubscribe.
func TestHashedRoutes(t *testing.T) {
	g := mustParse(t, "fat-tree:64,8,4")
	routes := func(g *Graph) (all []LinkID) {
		for src := range g.Hosts {
			for dst := range g.Hosts {
				all = append(all, g.Route(src, dst)...)
			}
		}
		return all
	}
	one := g.Hash(1)
	if slices.Equal(routes(one), routes(g)) || slices.Equal(routes(one), routes(g.Hash(2))) {
		t.Error("a hash, another seed and no hash give the same routes")
	}
	if !slices.Equal(routes(one), routes(g.Hash(1))) {
		t.Error("the same seed gives other routes")
	}
	flows := make([]int, len(g.Links))
	for _, l := range routes(one) {
		flows[l]++
	}
	const mean = 8 * 56 / 4 // flows out of a leaf per spine
	for l, n := range flows {
		if !g.IsHost(g.Links[l].From) && !g.IsHost(g.Links[l].To) && (n < mean/2 || n > 2*mean) {
			t.Errorf("link %d has %d flows, the mean is %d", l, n, mean)
		}
	}
	placed, err := one.Place([]int{0, 63})
	if err != nil {
		t.Fatal(err)
	}
	if placed, err = placed.Oversubscribe(2); err != nil {
		t.Fatal(err)
	}
	before, after := one.Route(0, 63), placed.Route(0, 1)
	for i := range before {
		if from := one.NodeName(one.Links[before[i]].From); from != placed.NodeName(placed.Links[after[i]].From) {
			t.Errorf("hop %d of the route starts at %s before Place, and elsewhere after it", i, from)
		}
	}
}

func TestWithRouting(t *testing.T) {
	g := mustParse(t, "fat-tree:16,4,4").Hash(9)
	for text, want := range map[string]*Graph{
		"dmodk": mustParse(t, "fat-tree:16,4,4"), "hash": g.Hash(1), "hash:1": g.Hash(1), "hash:7": g.Hash(7),
	} {
		got, err := g.WithRouting(text)
		if err != nil {
			t.Fatal(err)
		}
		for dst := range g.Hosts {
			if !slices.Equal(got.Route(0, dst), want.Route(0, dst)) {
				t.Errorf("%s: another route from host 0 to host %d", text, dst)
			}
		}
	}
	for _, text := range []string{"", "ecmp", "hash:", "hash:x", "hash:-1", "dmodk:1"} {
		if _, err := g.WithRouting(text); err == nil || !strings.Contains(err.Error(), RoutingForms) {
			t.Errorf("%q: %v; want an error with the valid forms", text, err)
		}
	}
}

// The way between leaves is the part between switches of a route between hosts there.
func TestLeafRoutes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawPlaced(t, 64)
		src, dst := rapid.IntRange(0, g.Hosts-1).Draw(t, "src"), rapid.IntRange(0, g.Hosts-1).Draw(t, "dst")
		from, to := g.Rack(src), g.Rack(dst)
		flow := g.Position(dst) - to*g.hostsPerLeaf
		route := g.LeafRoute(from, to, flow)
		if len(route) != max(0, g.Hops(src, dst)-2) {
			t.Fatalf("%s: %d links from leaf %d to leaf %d, hosts there are %d apart",
				g.Name, len(route), from, to, g.Hops(src, dst))
		}
		if g.Position(src)-from*g.hostsPerLeaf != flow || from == to {
			return
		}
		if hosts := g.Route(src, dst); !slices.Equal(route, hosts[1:len(hosts)-1]) {
			t.Fatalf("%s: %v from leaf %d to leaf %d, %v between hosts", g.Name, route, from, to, hosts)
		}
	})
	g := mustParse(t, "fat-tree:16,4,4")
	spines := map[NodeID]bool{}
	for flow := range 16 {
		spines[g.Links[g.LeafRoute(0, 3, flow)[0]].To] = true
	}
	if len(spines) != 4 {
		t.Errorf("flows between two leaves use %d of 4 spines", len(spines))
	}
}

func TestTiers(t *testing.T) {
	g := mustParse(t, "fat-tree3:16,4")
	byLink := make([]uint64, len(g.Links))
	for i := range byLink {
		byLink[i] = 1
	}
	sums := g.ByTier(byLink)
	for _, tier := range []string{"host_up", "host_down", "leaf_up", "leaf_down", "spine_up", "spine_down"} {
		if sums[tier] != 16 {
			t.Errorf("%d links in %s, want 16", sums[tier], tier)
		}
	}
	if up, down := g.Tier(g.HostUp(3)), g.Tier(g.HostDown(3)); len(sums) != 6 || up != "host_up" || down != "host_down" {
		t.Errorf("tiers %v; a host's links are %s and %s", sums, up, down)
	}
}
