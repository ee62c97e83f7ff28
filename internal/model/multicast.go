package model

import (
	"cmp"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/topology"
	"github.com/allcast/allcast/internal/wire"
)

// MaxSubgroups is the largest number of subgroups of a collective.
const MaxSubgroups = wire.MaxSubgroups

// maxTrees limits the default number of subgroups, because multicast groups take entries in switches.
const maxTrees = 16

// Trees returns the default number of subgroups on a network: one per multicast tree, up to 16.
func Trees(g *topology.Graph) int { return min(g.Trees(), maxTrees) }

// multicast adds the traffic of a multicast. It returns the bytes that a host link could carry in its time.
//
// Ranks send one after the other, and the busiest cable determines the time of each. A block crosses every cable of
// its trees once, in one of two equally fast directions, so the time does not depend on the rank.
func (t *Traffic) multicast(g *topology.Graph, kind p2p.Kind, load Workload) (busy float64, err error) {
	layout, err := wire.NewLayout(0)
	if err != nil {
		return 0, err
	}
	rounds, err := mcast.Plan(mcast.Shape{
		Kind: kind, Counts: load.blockSizes(kind, g.Hosts), Chunk: cmp.Or(load.Chunk, DefaultChunk), Chains: 1,
		Subgroups: max(1, load.Subgroups),
	}, layout)
	if err != nil {
		return 0, err
	}
	t.Subgroups = rounds[0].Subgroups()
	trees := make([]*topology.Tree, min(t.Subgroups, g.Trees()))
	for i := range trees {
		trees[i] = g.Tree(i)
	}
	perCable := make([]float64, len(g.Links)/2) // bytes of one block
	sent := make([]uint64, g.Hosts)             // bytes of each rank on one tree
	for _, round := range rounds {
		for stream := range round.Streams() {
			tree := trees[round.Subgroup(stream)%len(trees)]
			clear(sent)
			for rank := range sent {
				if psn, n := round.Block(stream, rank); n > 0 {
					_, length := round.Span(stream, psn, n)
					sent[rank] = uint64(length)
				}
			}
			t.addTree(g, tree, sent)
			for _, ports := range tree.Ports {
				for _, l := range ports {
					if l%2 == 0 {
						perCable[l/2] += float64(sent[0])
					}
				}
			}
		}
	}
	for cable, bytes := range perCable {
		busy = max(busy, bytes/g.Links[2*cable].Multiple)
	}
	if kind == p2p.Allgather {
		busy *= float64(g.Hosts)
	}
	return busy, nil
}

// addTree adds the traffic of a tree. A cable carries the blocks of the hosts below it up, and all others down.
func (t *Traffic) addTree(g *topology.Graph, tree *topology.Tree, sent []uint64) {
	below := make([]uint64, g.Nodes())
	var all uint64
	for host, n := range sent {
		below[host] = n
		all += n
	}
	for node, ports := range tree.Ports { // from the hosts up
		for _, l := range ports {
			if upper := g.Links[l].To; g.Level(upper) > g.Level(topology.NodeID(node)) {
				t.PayloadByLink[l] += below[node]
				t.PayloadByLink[g.Reverse(l)] += all - below[node]
				below[upper] += below[node]
			}
		}
	}
}
