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
