package topology

import (
	"math/bits"
	"runtime"
	"testing"

	"pgregory.net/rapid"
)

// flood sends a datagram from host src along the tree, with the forwarding rule of the switches only.
// It returns the number of crossings per link and of copies per host. ok is false if the datagram
// circulates.
func flood(g *Graph, t *Tree, src int) (crossed []int, copies []int, ok bool) {
	crossed, copies = make([]int, len(g.Links)), make([]int, g.Hosts)
	queue := append([]LinkID(nil), t.Ports[src]...)
	for sent := 0; len(queue) > 0; sent++ {
		if sent > len(g.Links) {
			return crossed, copies, false
		}
		in := queue[0]
		queue = queue[1:]
		crossed[in]++
		to := g.Links[in].To
		if g.IsHost(to) {
			copies[to]++
			continue
		}
		for _, out := range t.Ports[to] {
			if out != g.Reverse(in) {
				queue = append(queue, out)
			}
		}
	}
	return crossed, copies, true
}

// A datagram from any source reaches every other host once and crosses no link twice. The number of
// crossed links equals Links.
func TestTreesDeliverOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawPlaced(t, 128)
		tree := g.Tree(rapid.IntRange(0, 2*g.Trees()).Draw(t, "sub"))
		for src := range g.Hosts {
			crossed, copies, ok := flood(g, tree, src)
			if !ok {
				t.Fatalf("%s: the datagram of host %d circulates", g.Name, src)
			}
			total := 0
			for l, n := range crossed {
				total += n
				if n > 1 || n == 1 && crossed[g.Reverse(LinkID(l))] > 0 {
					t.Fatalf("%s: the datagram of host %d crosses cable %v again", g.Name, src, g.Links[l])
				}
			}
			if total != tree.Links(src) {
				t.Fatalf("%s: %d links crossed from host %d, Links returns %d", g.Name, total, src, tree.Links(src))
			}
			for dst, n := range copies {
				if want := min(1, max(dst-src, src-dst)); n != want {
					t.Fatalf("%s: host %d gets %d copies from host %d", g.Name, dst, n, src)
				}
			}
		}
	})
}

// Each port of the tree belongs to its node, and its reverse is in the tree as well. The tree is pruned:
// each switch in it has at least two ports. It has one cable less than nodes.
func TestTreesArePruned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawPlaced(t, 128)
		tree := g.Tree(rapid.IntRange(-3, 2*g.Trees()).Draw(t, "sub"))
		if len(tree.Ports) != g.Nodes() {
			t.Fatalf("%s: ports of %d nodes, the graph has %d", g.Name, len(tree.Ports), g.Nodes())
		}
		inTree, nodes, topLevel := map[LinkID]bool{}, 0, 0
		for n, ports := range tree.Ports {
			id := NodeID(n)
			for _, l := range ports {
				inTree[l] = true
				if g.Links[l].From != id {
					t.Fatalf("%s: %s has port %v", g.Name, g.NodeName(id), g.Links[l])
				}
			}
			if len(ports) == 0 {
				continue
			}
			nodes++
			topLevel = max(topLevel, level(t, g, id))
			if !g.IsHost(id) && len(ports) < 2 {
				t.Fatalf("%s: %s is a switch with fewer than two ports", g.Name, g.NodeName(id))
			}
		}
		for l := range inTree {
			if !inTree[g.Reverse(l)] {
				t.Fatalf("%s: the reverse of %v is not in the tree", g.Name, g.Links[l])
			}
		}
		if nodes > 0 && (tree.Links(0) != nodes-1 || len(inTree) != 2*tree.Links(0)) {
			t.Fatalf("%s: %d nodes, %d link directions, Links returns %d", g.Name, nodes, len(inTree), tree.Links(0))
		}
		if nodes > 0 && (len(tree.Ports[tree.Top]) == 0 || level(t, g, tree.Top) != topLevel) {
			t.Fatalf("%s: top is %s, which is not the highest node", g.Name, g.NodeName(tree.Top))
		}
	})
}

// fewestLinks returns the size of the smallest tree that joins the hosts. It tries all sets of switches:
// a connected set of n nodes has a tree of n-1 links.
func fewestLinks(g *Graph) int {
	best := len(g.Links)
	for set := range uint32(1) << g.Switches() {
		links := g.Hosts + bits.OnesCount32(set) - 1
		if links >= best {
			continue
		}
		root := make([]int, g.Nodes())
		for i := range root {
			root[i] = i
		}
		find := func(n NodeID) int {
			r := int(n)
			for root[r] != r {
				r = root[r]
			}
			return r
		}
		in := func(n NodeID) bool { return g.IsHost(n) || set>>(int(n)-g.Hosts)&1 == 1 }
		parts := links + 1
		for _, l := range g.Links {
			if a, b := find(l.From), find(l.To); in(l.From) && in(l.To) && a != b {
				root[a] = b
				parts--
			}
		}
		if parts == 1 {
			best = links
		}
	}
	return best
}

func TestTreesAreMinimal(t *testing.T) {
	check := func(t rapid.TB, g *Graph) {
		want := fewestLinks(g)
		for sub := range g.Trees() {
			if got := g.Tree(sub).Links(0); got != want {
				t.Fatalf("%s: tree %d has %d links, want %d", g.Name, sub, got, want)
			}
		}
	}
	for _, spec := range []string{
		"star:1", "fat-tree:1,1,3", "fat-tree:7,4,3", "fat-tree3:1,2", "fat-tree3:2,2", "fat-tree3:5,4", "fat-tree3:8,4",
	} {
		check(t, mustParse(t, spec))
	}
	rapid.Check(t, func(t *rapid.T) {
		if g := drawPlaced(t, 16); g.Switches() <= 10 {
			check(t, g)
		}
	})
}

// The first Trees trees have different tops and share no link between switches. Further subgroups
// reuse these trees.
func TestTreesSpread(t *testing.T) {
	for _, spec := range []string{
		"star:4", "fat-tree:5,4,3", "fat-tree:188,12,6", "fat-tree3:4,4", "fat-tree3:16,4", "fat-tree3:40,6",
	} {
		g := mustParse(t, spec)
		tops := map[NodeID]bool{}
		used := make([]int, len(g.Links))
		for sub := range g.Trees() {
			tree := g.Tree(sub)
			tops[tree.Top] = true
			for _, ports := range tree.Ports {
				for _, l := range ports {
					used[l]++
				}
			}
			if again := g.Tree(sub + g.Trees()); again.Top != tree.Top {
				t.Errorf("%s: trees %d and %d have tops %s and %s",
					spec, sub, sub+g.Trees(), g.NodeName(tree.Top), g.NodeName(again.Top))
			}
		}
		if len(tops) != g.Trees() {
			t.Errorf("%s: %d tops for %d trees", spec, len(tops), g.Trees())
		}
		for l, n := range used {
			shared := 1 // except that trees over one aggregation switch share its links to the leaves
			if level(t, g, g.Links[l].From)+level(t, g, g.Links[l].To) == 3 {
				shared = max(1, g.cores)
			}
			if !g.IsHost(g.Links[l].From) && !g.IsHost(g.Links[l].To) && n > shared {
				t.Errorf("%s: link %v is in %d trees", spec, g.Links[l], n)
			}
		}
	}
}

func TestTreesSpreadOverAggregationFirst(t *testing.T) {
	g := mustParse(t, "fat-tree3:16,4")
	for sub, want := range []string{"core0", "core2", "core1", "core3", "core0"} {
		if got := g.NodeName(g.Tree(sub).Top); got != want {
			t.Errorf("tree %d goes over %s, want %s", sub, got, want)
		}
	}
}

// The cost of a network is linear in its nodes and links, for each of which this test allows a few words. A table of
// all pairs of hosts would take 200 GiB for the largest one.
func TestLargeNetworksAreCheap(t *testing.T) {
	for _, spec := range []string{"fat-tree3:4096,32", "fat-tree3:11664,36", "fat-tree3:250000,100"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		g := mustParse(t, spec)
		tree := g.Tree(5)
		runtime.ReadMemStats(&after)
		bytes, most := after.TotalAlloc-before.TotalAlloc, 64*uint64(g.Nodes()+len(g.Links))
		if allocs := after.Mallocs - before.Mallocs; bytes > most || allocs > 200 {
			t.Errorf("%s took %d bytes in %d allocations, want at most %d in 200", spec, bytes, allocs, most)
		}
		if _, _, ok := flood(g, tree, g.Hosts-1); !ok {
			t.Errorf("%s: the datagram circulates", spec)
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	for _, spec := range []string{"fat-tree3:4096,32", "fat-tree3:11664,36"} {
		b.Run(spec, func(b *testing.B) {
			for b.Loop() {
				mustParse(b, spec).Tree(0)
			}
		})
	}
}
