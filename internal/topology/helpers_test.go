package topology

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func mustParse(t testing.TB, spec string) *Graph {
	t.Helper()
	g, err := Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// drawGraph draws a network that is small enough to check all pairs of its hosts.
func drawGraph(t *rapid.T, maxHosts int) *Graph {
	var spec string
	switch kind(rapid.IntRange(int(star), int(fatTree3)).Draw(t, "kind")) {
	case star:
		spec = fmt.Sprintf("star:%d", rapid.IntRange(1, maxHosts).Draw(t, "hosts"))
	case fatTree:
		hosts := rapid.IntRange(1, maxHosts).Draw(t, "hosts")
		leaves := rapid.IntRange(1, min(hosts, 12)).Draw(t, "leaves")
		spec = fmt.Sprintf("fat-tree:%d,%d,%d", hosts, leaves, rapid.IntRange(1, 8).Draw(t, "spines"))
	case fatTree3:
		radix := 2 * rapid.IntRange(1, 4).Draw(t, "half")
		hosts := rapid.IntRange(1, min(maxHosts, radix*radix*radix/4)).Draw(t, "hosts")
		spec = fmt.Sprintf("fat-tree3:%d,%d", hosts, radix)
	}
	g, err := Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// drawPlaced draws a network with any placement of ranks on some of its hosts, any oversubscription and any routing.
func drawPlaced(t *rapid.T, maxHosts int) *Graph {
	g := drawGraph(t, maxHosts)
	placement := rapid.Permutation(inOrder(g.Hosts)).Draw(t, "placement")
	g, err := g.Place(placement[:rapid.IntRange(1, g.Hosts).Draw(t, "ranks")])
	if err != nil {
		t.Fatal(err)
	}
	if g.spines > 0 {
		if g, err = g.Oversubscribe(rapid.Float64Range(1, 8).Draw(t, "oversubscription")); err != nil {
			t.Fatal(err)
		}
	}
	if rapid.Bool().Draw(t, "hashed") {
		g = g.Hash(rapid.Uint64().Draw(t, "seed"))
	}
	return g
}

// level returns the height of a node above the hosts, derived from its name only.
func level(t rapid.TB, g *Graph, n NodeID) int {
	name := g.NodeName(n)
	for i, prefix := range []string{"host", "leaf", "spine", "core"} {
		if strings.HasPrefix(name, prefix) {
			return i
		}
	}
	if strings.HasPrefix(name, "agg") {
		return 2
	}
	t.Fatalf("%s: node %d has the unexpected name %q", g.Name, n, name)
	return 0
}

// neighbours lists the outgoing links of each node, derived from Links only.
func neighbours(g *Graph) [][]LinkID {
	out := make([][]LinkID, g.Nodes())
	for i, l := range g.Links {
		out[l.From] = append(out[l.From], LinkID(i))
	}
	return out
}

// distances returns the distance from one node to all others, by breadth-first search.
func distances(g *Graph, out [][]LinkID, from NodeID) []int {
	dist := make([]int, g.Nodes())
	for i := range dist {
		dist[i] = -1
	}
	dist[from] = 0
	queue := []NodeID{from}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		for _, l := range out[n] {
			if to := g.Links[l].To; dist[to] < 0 {
				dist[to] = dist[n] + 1
				queue = append(queue, to)
			}
		}
	}
	return dist
}
