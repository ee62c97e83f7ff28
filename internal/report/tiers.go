package report

import (
	"fmt"
	"strings"

	"github.com/allcast/allcast/internal/topology"
)

// kind is the level of a node, from the hosts up.
type kind int

const (
	hostNode kind = iota
	leafNode
	spineNode // aggregation switch in a network of three levels
	coreNode
)

func kindOf(g *topology.Graph, n topology.NodeID) kind {
	name := g.NodeName(n)
	switch {
	case g.IsHost(n):
		return hostNode
	case strings.HasPrefix(name, "leaf"):
		return leafNode
	case strings.HasPrefix(name, "core"):
		return coreNode
	}
	return spineNode
}

// tiers lists the nodes of a network by level and by pod.
type tiers struct {
	g     *topology.Graph
	kinds []kind              // by node
	nodes [][]topology.NodeID // by kind
	names []string            // by kind: "leaf"
	racks [][]int             // by leaf: its hosts; some leaves have none
	pods  []pod
}

// pod is a group of leaves with the same spines; without cores, all leaves are one pod.
type pod struct {
	leaves []topology.NodeID
	spines []topology.NodeID
}

func newTiers(g *topology.Graph) *tiers {
	t := &tiers{g: g, kinds: make([]kind, g.Nodes()), nodes: make([][]topology.NodeID, coreNode+1)}
	for n := range t.kinds {
		id := topology.NodeID(n)
		k := kindOf(g, id)
		t.kinds[n] = k
		t.nodes[k] = append(t.nodes[k], id)
	}
	for len(t.nodes[len(t.nodes)-1]) == 0 {
		t.nodes = t.nodes[:len(t.nodes)-1]
	}
	for _, nodes := range t.nodes {
		t.names = append(t.names, strings.TrimRight(g.NodeName(nodes[0]), "0123456789."))
	}
	t.racks = make([][]int, len(t.nodes[leafNode]))
	for h := range g.Hosts {
		leaf := g.Links[g.HostUp(h)].To - t.nodes[leafNode][0]
		t.racks[leaf] = append(t.racks[leaf], h)
	}
	t.findPods()
	return t
}

// findPods groups leaves by the first spine above them, which only leaves of one pod share.
func (t *tiers) findPods() {
	index := map[topology.NodeID]int{} // by leaf or spine
	for c := t.g.Hosts; c < len(t.g.Links)/2; c++ {
		cable := t.g.Links[2*c]
		if t.kinds[cable.From] != leafNode {
			continue
		}
		at, known := index[cable.To]
		if !known {
			if at, known = index[cable.From]; !known {
				at = len(t.pods)
				t.pods = append(t.pods, pod{})
			}
			index[cable.To] = at
			t.pods[at].spines = append(t.pods[at].spines, cable.To)
		}
		if _, known := index[cable.From]; !known {
			index[cable.From] = at
			t.pods[at].leaves = append(t.pods[at].leaves, cable.From)
		}
	}
	if len(t.pods) == 0 { // a star
		t.pods = []pod{{leaves: t.nodes[leafNode]}}
	}
}

// hostsPerLeaf is the maximum number of hosts per leaf.
func (t *tiers) hostsPerLeaf() (most int) {
	for _, hosts := range t.racks {
		most = max(most, len(hosts))
	}
	return most
}

// count describes the number of a level's nodes in words.
func (t *tiers) count(k kind) string {
	n, name := len(t.nodes[k]), t.names[k]
	switch {
	case n == 1:
	case name == "leaf":
		name = "leaves"
	default:
		name += "s"
	}
	return fmt.Sprintf("%d %s", n, name)
}

// number identifies a node within its level: "3", or "1.4".
func (t *tiers) number(n topology.NodeID) string {
	return strings.TrimLeft(t.g.NodeName(n), "abcdefghijklmnopqrstuvwxyz")
}
