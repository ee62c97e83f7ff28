package topology

// The traffic of an Allgather in block-link traversals: each block (one rank's send buffer) counts
// once per link direction that it crosses. The paper's Figure 2 compares these numbers. Its
// formula miscounts them (see docs/claims.md), so tests check ours against routes on the graph.

// TreeTraversals is the count of the multicast Allgather: each block crosses
// each cable of the tree once. It is the same for all subgroups' trees.
func (g *Graph) TreeTraversals() int64 {
	_, cables := g.treeCables(0)
	return int64(g.Hosts) * int64(len(cables))
}

// RingTraversals is the count of the ring in host order: each block takes all
// steps around the ring but the one that would bring it back.
func (g *Graph) RingTraversals() int64 {
	var around int64
	for h := range g.Hosts {
		around += int64(g.Hops(h, (h+1)%g.Hosts))
	}
	return around * int64(g.Hosts-1)
}

// LinearTraversals is the count of sending each block to each host separately: the sum of Hops over
// all ordered pairs. A million hosts have too many pairs, so it sums by level. A pair is 6 links
// apart, 2 less in one pod, 2 less again in one rack, and 0 for a host and itself.
func (g *Graph) LinearTraversals() int64 {
	hosts := int64(g.Hosts)
	return 6*hosts*hosts -
		2*g.pairsWithin(int64(g.hostsPerLeaf)*int64(g.leavesPerPod)) -
		2*g.pairsWithin(int64(g.hostsPerLeaf)) -
		2*hosts
}

// pairsWithin counts the ordered pairs of hosts, a host with itself included,
// that share a group when groups of the given size fill up in host order.
func (g *Graph) pairsWithin(size int64) int64 {
	full, rest := int64(g.Hosts)/size, int64(g.Hosts)%size
	return full*size*size + rest*rest
}
