package topology

// Next returns the link that a unicast packet from host src to host dst takes
// out of node at, or NoLink at dst itself.
//
// Packets go up until they reach a switch above dst, then down. The position of the destination alone selects the port
// up (D-mod-k routing), unless [Graph.Hash] was called. Consecutive hosts are reached over different spines. In a shift
// (rank i sends to i+s: ring, Bruck, linear) the hosts of a full leaf therefore do not share a link up. All packets to
// a host come down the same way, so destinations do not share a link down. Both hold if ranks are placed in order and
// a leaf has one link up per host; with fewer, the load spreads evenly. A packet never goes up after it went down, so a
// lossless network cannot deadlock.
func (g *Graph) Next(at NodeID, dst, src int) LinkID {
	n := int(at)
	if n < g.leaf0 {
		if n == dst {
			return NoLink
		}
		return up(n)
	}
	leaf := g.Rack(dst)
	if n == g.leaf0+leaf {
		return down(dst)
	}
	return g.nextSwitch(n, leaf, g.choice(g.at[src], g.at[dst]))
}

// nextSwitch returns the link that a packet to a leaf takes out of another switch, by the number that selects its
// ports up.
func (g *Graph) nextSwitch(n, leaf, choice int) LinkID {
	switch {
	case n < g.spine0:
		return up(g.spineCable(n-g.leaf0, choice%g.spines))
	case n < g.core0:
		pod, spine := (n-g.spine0)/g.spines, (n-g.spine0)%g.spines
		if leaf/g.leavesPerPod == pod {
			return down(g.spineCable(leaf, spine))
		}
		return up(g.coreCable(pod, spine, choice/g.spines%g.cores))
	default:
		spine, core := (n-g.core0)/g.cores, (n-g.core0)%g.cores
		return down(g.coreCable(leaf/g.leavesPerPod, spine, core))
	}
}

// choice returns the number that selects the ports of a packet's way up, by the positions of both ends.
func (g *Graph) choice(src, dst int) int {
	if !g.hashed {
		return dst
	}
	// The finalizer of SplitMix64, which mixes all bits. 31 of them fit any int.
	x := g.seed + uint64(src)<<32 + uint64(dst)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int((x ^ x>>31) >> 33)
}

// LeafRoute returns the links between switches on the way from a leaf to another one. Flows with different numbers
// have different ends at these leaves, whether a rank is there or not, so their routes may differ.
func (g *Graph) LeafRoute(from, to, flow int) []LinkID {
	host := flow % g.hostsPerLeaf
	choice := g.choice(from*g.hostsPerLeaf+host, to*g.hostsPerLeaf+host)
	var route []LinkID
	for n := g.leaf0 + from; n != g.leaf0+to; n = int(g.Links[route[len(route)-1]].To) {
		route = append(route, g.nextSwitch(n, to, choice))
	}
	return route
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

// LongestPath returns the number of links between the hosts that are furthest apart.
func (g *Graph) LongestPath() int {
	switch {
	case g.Hosts == 1:
		return 0
	case g.Racks() == 1:
		return 2
	case len(g.used) == 1:
		return 4
	default:
		return 6
	}
}
