package topology

import "fmt"

// Shape is the form of a network: leaves with hosts, and spines above them.
type Shape struct {
	HostsPerLeaf int
	Leaves       int     // with or without hosts
	Spines       int     // above each leaf; 0 in a star
	Pods         int     // groups of leaves with the same spines
	Cores        int     // above each spine; 0 with one pod
	Uplink       float64 // rate of a link between switches, as a multiple of a host link's
}

// Shape returns the form of the network.
func (g *Graph) Shape() Shape {
	s := g.shape
	return Shape{
		HostsPerLeaf: s.hostsPerLeaf, Leaves: s.leaves, Spines: s.spines, Pods: s.pods, Cores: s.cores, Uplink: s.uplink,
	}
}

// Uplinks returns the network with links between switches of the given multiple of a host link's rate. An error tells
// why it is not possible.
func (g *Graph) Uplinks(multiple float64) (*Graph, error) {
	switch {
	case !(multiple > 0 && multiple <= maxMultiple):
		return nil, fmt.Errorf("links between switches of %v times a host's rate: want more than 0, at most %d",
			multiple, maxMultiple)
	case g.spines == 0:
		return nil, fmt.Errorf("%s has no links between switches", g.Name)
	}
	s := g.shape
	s.uplink = multiple
	s.ratio = float64(s.hostsPerLeaf) / float64(s.spines) / multiple
	return g.rebuild(g.at, s), nil
}

const maxMultiple = 1 << 20
