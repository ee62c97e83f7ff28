package topology

import "fmt"

// Position returns the place of host h in the network, counted leaf by leaf. Its name has this number.
func (g *Graph) Position(h int) int { return g.at[h] }

// InOrder reports whether ranks fill the network leaf by leaf: rank h is on the host with that number.
func (g *Graph) InOrder() bool {
	for h, at := range g.at {
		if h != at {
			return false
		}
	}
	return true
}

// Rack returns the index of the leaf that host h is linked to.
func (g *Graph) Rack(h int) int { return g.at[h] / g.hostsPerLeaf }

// Slot returns the number of host h among the hosts of its leaf. It is the same with any placement of ranks.
func (g *Graph) Slot(h int) int { return g.at[h] % g.hostsPerLeaf }

// Racks returns the number of leaves that hold hosts.
func (g *Graph) Racks() int { return len(g.racks) }

// findRacks lists the leaves and pods that hold hosts.
func (g *Graph) findRacks() {
	holds := make([]bool, g.leaves)
	for h := range g.Hosts {
		holds[g.Rack(h)] = true
	}
	for leaf, ok := range holds {
		if !ok {
			continue
		}
		g.racks = append(g.racks, leaf)
		if pod := leaf / g.leavesPerPod; len(g.used) == 0 || g.used[len(g.used)-1] != pod {
			g.used = append(g.used, pod)
		}
	}
}

// ByRack groups hosts by rack: racks in ascending order, so that those of a pod
// stay together, and the hosts of a rack in the order given. Racks without any
// of the hosts are left out. A chain that follows the groups hands its
// activations on inside a rack wherever it can.
func (g *Graph) ByRack(ranks []int) [][]int {
	racks := make([][]int, g.leaves)
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

// Level is the level of a node, from the hosts up.
type Level int

// Levels. Spines are called aggregation switches in a network of three levels.
const (
	HostLevel Level = iota
	LeafLevel
	SpineLevel
	CoreLevel
)

// Level returns the level of a node.
func (g *Graph) Level(n NodeID) Level {
	level := HostLevel
	for _, first := range []int{g.leaf0, g.spine0, g.core0} {
		if int(n) >= first {
			level++
		}
	}
	return level
}

// Leaves returns the number of leaves, with or without hosts.
func (g *Graph) Leaves() int { return g.leaves }

// Pods returns the number of pods: groups of leaves with the same spines.
func (g *Graph) Pods() int { return g.pods }

// Pod returns the pod of a leaf or spine.
func (g *Graph) Pod(n NodeID) int {
	if g.Level(n) == LeafLevel {
		return (int(n) - g.leaf0) / g.leavesPerPod
	}
	return (int(n) - g.spine0) / g.spines
}

// NodeName returns the name of a node for users: "host3", "leaf2", "spine0", and in three levels
// "agg1.4" (pod 1, fifth aggregation switch) and "core17".
func (g *Graph) NodeName(n NodeID) string {
	i := int(n)
	switch g.Level(n) {
	case HostLevel:
		return fmt.Sprintf("host%d", g.at[i])
	case LeafLevel:
		return fmt.Sprintf("leaf%d", i-g.leaf0)
	case CoreLevel:
		return fmt.Sprintf("core%d", i-g.core0)
	}
	if g.kind == fatTree3 {
		return fmt.Sprintf("agg%d.%d", g.Pod(n), (i-g.spine0)%g.spines)
	}
	return fmt.Sprintf("spine%d", i-g.spine0)
}
