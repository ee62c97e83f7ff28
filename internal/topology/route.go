package topology

// Next returns the link that a unicast packet from host src to host dst takes
// out of node at, or NoLink at dst itself.
//
// Packets go up until they reach a switch above dst, then down. The destination alone selects the
// port up (D-mod-k routing), so src is unused; the parameter keeps that detail from callers.
// Consecutive hosts are reached over different spines. In a shift (rank i sends to i+s: ring, Bruck,
// linear) the hosts of a full leaf therefore do not share a link up. All packets to a host come down
// the same way, so destinations do not share a link down. Both hold if a leaf has one link up per
// host; with fewer, the load spreads evenly. A packet never goes up after it went down, so a
// lossless network cannot deadlock.
func (g *Graph) Next(at NodeID, dst, _ int) LinkID {
	n := int(at)
	if n < g.leaf0 {
		if n == dst {
			return NoLink
		}
		return up(n)
	}
	leaf := g.Rack(dst)
	switch {
	case n < g.spine0:
		l := n - g.leaf0
		if l == leaf {
			return down(dst)
		}
		return up(g.spineCable(l, dst%g.spines))
	case n < g.core0:
		pod, spine := (n-g.spine0)/g.spines, (n-g.spine0)%g.spines
		if leaf/g.leavesPerPod == pod {
			return down(g.spineCable(leaf, spine))
		}
		return up(g.coreCable(pod, spine, dst/g.spines%g.cores))
	default:
		spine, core := (n-g.core0)/g.cores, (n-g.core0)%g.cores
		return down(g.coreCable(leaf/g.leavesPerPod, spine, core))
	}
}

// Route returns the links of the way from host src to host dst, none if they
// are the same.
func (g *Graph) Route(src, dst int) []LinkID {
	route := make([]LinkID, 0, g.Hops(src, dst))
	for l := g.Next(NodeID(src), dst, src); l != NoLink; {
		route = append(route, l)
		l = g.Next(g.Links[l].To, dst, src)
	}
	return route
}

// Hops returns the number of links between two hosts.
func (g *Graph) Hops(src, dst int) int {
	a, b := g.Rack(src), g.Rack(dst)
	switch {
	case src == dst:
		return 0
	case a == b:
		return 2
	case a/g.leavesPerPod == b/g.leavesPerPod:
		return 4
	default:
		return 6
	}
}
