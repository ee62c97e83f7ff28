package model

import (
	"fmt"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/topology"
)

// MaxTrafficHosts limits CountTraffic: it computes the plans of all ranks, which takes seconds at
// this size and grows with its square.
const MaxTrafficHosts = 4096

// Traffic is the load of an algorithm on the links of a network (Fig. 2), in block-link
// traversals. Each block, which is one rank's send buffer, counts once per link direction that
// it crosses.
type Traffic struct {
	Topology   string  `json:"topology"`
	Op         string  `json:"op"`
	Algo       string  `json:"algo"`
	Nodes      int     `json:"nodes"`
	BlockLinks int64   `json:"block_links"`
	Ratio      float64 `json:"ratio"` // to multicast
}

// trafficAlgorithms are the algorithms to compare. Broadcast's scatter-allgather is missing
// because it sends parts of blocks.
var trafficAlgorithms = []struct {
	kind  p2p.Kind
	algos []string
}{
	{p2p.Allgather, []string{"linear", "ring", "recursive-doubling", "bruck", "mcast"}},
	{p2p.Broadcast, []string{"binomial", "knomial", "binary", "chain", "mcast"}},
}

// CountTraffic counts the traffic of the Allgather and Broadcast algorithms, with rank i on
// host i. The sends come from the plans that the engine runs, and the distances from the graph
// that the simulator and the lab use, so the count cannot disagree with either.
func CountTraffic(g *topology.Graph) ([]Traffic, error) {
	if g.Hosts > MaxTrafficHosts {
		return nil, fmt.Errorf("%d hosts are too many to count; want at most %d", g.Hosts, MaxTrafficHosts)
	}
	tree := g.Tree(0)
	var all []Traffic
	for _, op := range trafficAlgorithms {
		mcast := int64(tree.Links(0))
		if op.kind == p2p.Allgather {
			mcast *= int64(g.Hosts) // one tree per block; its size does not depend on the source
		}
		for _, algo := range op.algos {
			links := mcast
			if algo != "mcast" {
				var err error
				if links, err = plannedTraffic(g, op.kind, algo); err != nil {
					return nil, err
				}
			}
			ratio := 1.0
			if mcast > 0 { // one host alone sends nothing
				ratio = float64(links) / float64(mcast)
			}
			all = append(all, Traffic{g.Name, op.kind.String(), algo, g.Hosts, links, ratio})
		}
	}
	return all, nil
}

// plannedTraffic adds up the sends of all ranks. A block is one byte long, so a
// send's length is the number of its blocks.
func plannedTraffic(g *topology.Graph, kind p2p.Kind, algo string) (int64, error) {
	spec := p2p.Spec{Kind: kind, Size: g.Hosts, Bytes: 1}
	if kind == p2p.Allgather {
		spec.Counts = make([]int64, g.Hosts)
		for i := range spec.Counts {
			spec.Counts[i] = 1
		}
	}
	var links int64
	for spec.Rank = range g.Hosts {
		plan, err := p2p.New(algo, spec)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", algo, err)
		}
		for _, s := range plan.Sends {
			links += s.Len * int64(g.Hops(spec.Rank, int(s.To)))
		}
	}
	return links, nil
}
