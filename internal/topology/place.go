package topology

import "fmt"

// Rack returns the index of the leaf that host h is linked to.
func (g *Graph) Rack(h int) int { return h / g.hostsPerLeaf }

// Racks returns the number of leaves that hold hosts.
func (g *Graph) Racks() int { return ceilDiv(g.Hosts, g.hostsPerLeaf) }

// ByRack groups hosts by rack: racks in ascending order, so that those of a pod
// stay together, and the hosts of a rack in the order given. Racks without any
// of the hosts are left out. A chain that follows the groups hands its
// activations on inside a rack wherever it can.
func (g *Graph) ByRack(ranks []int) [][]int {
	racks := make([][]int, g.Racks())
	for _, h := range ranks {
		r := g.Rack(h)
		racks[r] = append(racks[r], h)
	}
	groups := racks[:0]
	for _, hosts := range racks {
		if len(hosts) > 0 {
			groups = append(groups, hosts)
		}
	}
	return groups
}

// NodeName returns the name of a node for users: "host3", "leaf2", "spine0", and in three levels
// "agg1.4" (pod 1, fifth aggregation switch) and "core17".
func (g *Graph) NodeName(n NodeID) string {
	i := int(n)
	switch {
	case i < g.leaf0:
		return fmt.Sprintf("host%d", i)
	case i < g.spine0:
		return fmt.Sprintf("leaf%d", i-g.leaf0)
	case i >= g.core0:
		return fmt.Sprintf("core%d", i-g.core0)
	case g.kind == fatTree3:
		return fmt.Sprintf("agg%d.%d", (i-g.spine0)/g.spines, (i-g.spine0)%g.spines)
	default:
		return fmt.Sprintf("spine%d", i-g.spine0)
	}
}
