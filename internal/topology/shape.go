package topology

// shape is the common form of the three kinds of network: pods of leaves, with each leaf linked to
// all spines of its pod, and cores that link spines of different pods. A star is one leaf without
// spines, and a two-level fat-tree is one pod. In a three-level fat-tree, the spines of a pod are
// called aggregation switches.
type shape struct {
	kind         kind
	hostsPerLeaf int
	leaves       int // all leaves, with or without hosts
	leavesPerPod int
	pods         int
	spines       int     // in each pod; 0 in a star
	cores        int     // above each spine, shared by all pods; 0 with one pod
	uplink       float64 // Multiple of the links between switches
	ratio        float64 // argument of Oversubscribe; 0 without
}

func starShape(hosts int) shape {
	return shape{kind: star, hostsPerLeaf: hosts, leaves: 1, leavesPerPod: 1, pods: 1}
}

// fatTreeShape has all the leaves and spines of the spec. Hosts fill leaf by leaf, so the last
// leaves may be empty (5 hosts on 4 leaves); a lab still shows them.
func fatTreeShape(hosts, leaves, spines int) shape {
	perLeaf := ceilDiv(hosts, leaves)
	return shape{
		kind: fatTree, hostsPerLeaf: perLeaf, leaves: leaves, leavesPerPod: leaves, pods: 1, spines: spines,
		// Non-blocking: a leaf has the same rate up and down.
		uplink: max(1, float64(perLeaf)/float64(spines)),
	}
}

// fatTree3Shape is the k-ary fat-tree (Al-Fares et al., SIGCOMM 2008) without
// the pods and leaves that would hold no host.
func fatTree3Shape(hosts, radix int) shape {
	half := radix / 2
	s := shape{kind: fatTree3, hostsPerLeaf: half, leavesPerPod: half, spines: half, uplink: 1}
	s.leaves = ceilDiv(hosts, half)
	s.pods = ceilDiv(s.leaves, half)
	if s.pods > 1 {
		s.cores = half
	}
	return s
}

// cables counts the cables between switches. A spec can describe more than a 32-bit int holds.
func (s *shape) cables() int64 {
	return int64(s.leaves)*int64(s.spines) + int64(s.pods)*int64(s.spines)*int64(s.cores)
}

// build builds the graph. Nodes are ordered by level from the hosts up, cables by their lower end,
// so that routes are arithmetic on indices. Host h has position at[h], counted leaf by leaf.
func build(name string, at []int, s shape) *Graph {
	hosts := len(at)
	g := &Graph{Name: name, Hosts: hosts, shape: s, at: at}
	g.findRacks()
	g.leaf0 = hosts
	g.spine0 = g.leaf0 + s.leaves
	g.core0 = g.spine0 + s.pods*s.spines
	g.nodes = g.core0 + s.spines*s.cores
	g.spineCable0 = hosts
	g.coreCable0 = g.spineCable0 + s.leaves*s.spines

	g.Links = make([]Link, 0, 2*(int64(hosts)+s.cables()))
	cable := func(lower, upper int, multiple float64) {
		l, u := NodeID(lower), NodeID(upper)
		g.Links = append(g.Links, Link{l, u, multiple}, Link{u, l, multiple})
	}
	for h := range hosts {
		cable(h, g.leaf0+g.Rack(h), 1)
	}
	for leaf := range s.leaves {
		for spine := range s.spines {
			cable(g.leaf0+leaf, g.spineNode(leaf/s.leavesPerPod, spine), s.uplink)
		}
	}
	for pod := range s.pods {
		for spine := range s.spines {
			for core := range s.cores {
				cable(g.spineNode(pod, spine), g.coreNode(spine, core), s.uplink)
			}
		}
	}
	return g
}

func (g *Graph) spineNode(pod, spine int) int   { return g.spine0 + pod*g.spines + spine }
func (g *Graph) coreNode(spine, core int) int   { return g.core0 + spine*g.cores + core }
func (g *Graph) spineCable(leaf, spine int) int { return g.spineCable0 + leaf*g.spines + spine }

func (g *Graph) coreCable(pod, spine, core int) int {
	return g.coreCable0 + (pod*g.spines+spine)*g.cores + core
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
