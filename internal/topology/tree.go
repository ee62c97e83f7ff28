package topology

// Tree is a multicast tree: bidirectional and shared by all sources, as
// InfiniBand's are. A datagram that reaches a switch over link in leaves it on
// all of the switch's ports but Reverse(in), so it crosses each cable at most
// once and every host but the source gets one copy.
type Tree struct {
	// Top is the single switch above all hosts: a spine, a core, or the only leaf with hosts.
	Top NodeID
	// Ports lists each node's outgoing links of the tree, hosts' included. It
	// is empty for a node that is not in the tree.
	Ports [][]LinkID

	links int
}

// Links returns the number of link directions that a datagram from host src crosses to reach all
// others. It is the same for every source: each port of the tree leads to a host, so a datagram
// crosses every cable in one direction.
func (t *Tree) Links(int) int { return t.links }

// Trees returns how many trees with different tops there are.
func (g *Graph) Trees() int {
	switch {
	case g.Racks() == 1:
		return 1
	case len(g.used) == 1:
		return g.spines
	default:
		return g.spines * g.cores
	}
}

// TreeSwitches returns the number of switches in each tree.
func (g *Graph) TreeSwitches() int {
	switch {
	case g.Racks() == 1:
		return 1
	case len(g.used) == 1:
		return g.Racks() + 1
	default:
		return g.Racks() + len(g.used) + 1
	}
}

// Tree builds the multicast tree of subgroup sub, which spans all hosts. Trees of different
// subgroups first use different spines, so that they share no link between switches. In each pod
// that is the spine with the same index, because only those share cores. Further trees use
// different cores above the same spines, and after Trees subgroups they repeat. Callers should keep
// the tree: Tree builds it on each call, because a cache would make the graph mutable.
func (g *Graph) Tree(sub int) *Tree {
	top, cables := g.treeCables(sub)
	t := &Tree{Top: top, Ports: make([][]LinkID, g.nodes), links: len(cables)}

	// All ports lie in one block, node by node: a switch that replicates reads
	// consecutive memory.
	degree := make([]int, g.nodes)
	for _, l := range cables {
		degree[g.Links[l].From]++
		degree[g.Links[l].To]++
	}
	block := make([]LinkID, 2*len(cables))
	for n, d := range degree {
		t.Ports[n], block = block[:0:d], block[d:]
	}
	for _, l := range cables {
		lower, upper := g.Links[l].From, g.Links[l].To
		t.Ports[lower] = append(t.Ports[lower], l)
		t.Ports[upper] = append(t.Ports[upper], g.Reverse(l))
	}
	return t
}

// treeCables returns the top and the upward links of a subgroup's tree by level. It leaves out
// levels that are not needed to connect the hosts.
func (g *Graph) treeCables(sub int) (top NodeID, cables []LinkID) {
	n := g.Trees()
	sub = (sub%n + n) % n // any sub gives a tree

	top = NodeID(g.leaf0 + g.racks[0])
	if g.Hosts == 1 {
		return top, nil // no other host to reach
	}
	cables = make([]LinkID, 0, g.Hosts+g.Racks()+len(g.used))
	for h := range g.Hosts {
		cables = append(cables, up(h))
	}
	if g.Racks() == 1 {
		return top, cables
	}
	spine, core := sub%g.spines, sub/g.spines
	top = NodeID(g.spineNode(g.used[0], spine))
	for _, leaf := range g.racks {
		cables = append(cables, up(g.spineCable(leaf, spine)))
	}
	if len(g.used) == 1 {
		return top, cables
	}
	top = NodeID(g.coreNode(spine, core))
	for _, pod := range g.used {
		cables = append(cables, up(g.coreCable(pod, spine, core)))
	}
	return top, cables
}
