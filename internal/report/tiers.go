package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/allcast/allcast/internal/topology"
)

// tiers lists the nodes of a network by level and by pod.
type tiers struct {
	g     *topology.Graph
	nodes [][]topology.NodeID // by level
	names []string            // by level: "leaf"
	racks [][]int             // by leaf: its hosts in the order of their names; some leaves have none
	pods  []pod
}

// pod is a group of leaves with the same spines; without cores, all leaves are one pod.
type pod struct {
	leaves []topology.NodeID
	spines []topology.NodeID
}

func newTiers(g *topology.Graph) *tiers {
	t := &tiers{g: g, nodes: make([][]topology.NodeID, topology.CoreLevel+1), pods: make([]pod, g.Pods())}
	for n := range topology.NodeID(g.Nodes()) {
		level := g.Level(n)
		t.nodes[level] = append(t.nodes[level], n)
		switch level {
		case topology.LeafLevel:
			p := &t.pods[g.Pod(n)]
			p.leaves = append(p.leaves, n)
		case topology.SpineLevel:
			p := &t.pods[g.Pod(n)]
			p.spines = append(p.spines, n)
		}
	}
	for len(t.nodes[len(t.nodes)-1]) == 0 {
		t.nodes = t.nodes[:len(t.nodes)-1]
	}
	for _, nodes := range t.nodes {
		t.names = append(t.names, strings.TrimRight(g.NodeName(nodes[0]), "0123456789."))
	}
	t.racks = make([][]int, len(t.nodes[topology.LeafLevel]))
	for h := range g.Hosts {
		leaf := g.Links[g.HostUp(h)].To - t.nodes[topology.LeafLevel][0]
		t.racks[leaf] = append(t.racks[leaf], h)
	}
	for _, hosts := range t.racks {
		slices.SortFunc(hosts, func(a, b int) int { return g.Position(a) - g.Position(b) })
	}
	return t
}

// hostsPerLeaf is the maximum number of hosts per leaf.
func (t *tiers) hostsPerLeaf() (most int) {
	for _, hosts := range t.racks {
		most = max(most, len(hosts))
	}
	return most
}

// count describes the number of a level's nodes in words.
func (t *tiers) count(k topology.Level) string {
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
