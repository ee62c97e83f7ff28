package model

import (
	"fmt"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/topology"
)

// MaxTrafficHosts limits MeasureTraffic: it computes the plans of all ranks, which takes seconds at
// this size and grows with its square. MaxTimedHosts limits it where times are wanted, because all plans are then in
// memory at once.
const (
	MaxTrafficHosts = 4096
	MaxTimedHosts   = 1024
)

// A Workload is what a collective moves, and how.
type Workload struct {
	Bytes     int64   // size of a block
	Rate      float64 // rate of a host link in bit/s; 0 if times are not wanted
	Subgroups int     // multicast trees that share a block; 0 means 1
	Chunk     int     // payload of a multicast datagram, the unit in which blocks are shared; 0 means DefaultChunk
}

// DefaultChunk is the payload of a datagram of the paper.
const DefaultChunk = 4096

// Traffic is the load of an algorithm on the links of a network (Fig. 2). Block-link traversals count each block, which
// is one rank's send buffer, once per link direction that it crosses. Bytes are payload.
type Traffic struct {
	Topology   string  `json:"topology"`
	Op         string  `json:"op"`
	Algo       string  `json:"algo"`
	Nodes      int     `json:"nodes"`
	BlockLinks int64   `json:"block_links"`
	Ratio      float64 `json:"ratio"` // to multicast

	Bytes     int64             `json:"bytes"`
	Subgroups int               `json:"subgroups,omitempty"` // as used; multicast only
	TierBytes map[string]uint64 `json:"tier_bytes"`          // under the names of topology.Graph.Tier
	// TimeUS is the time of the transfer without latency, headers and barriers, if a rate is known.
	TimeUS float64 `json:"time_us,omitempty"`
	// LineRateShare is the time that a host link at full rate needs for what a rank must receive, divided by TimeUS.
	LineRateShare float64 `json:"line_rate_share,omitempty"`

	PayloadByLink []uint64 `json:"-"` // by topology.LinkID
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

// CountTraffic counts the traffic of the Allgather and Broadcast algorithms. Rank i is on
// host i of the graph. The sends come from the plans that the engine runs, and the routes from the graph
// that the simulator and the lab use, so the count cannot disagree with either.
func CountTraffic(g *topology.Graph) ([]Traffic, error) { return MeasureTraffic(g, Workload{Bytes: 1}) }

// MeasureTraffic is CountTraffic with blocks of some size, and with times if the Workload has a rate.
func MeasureTraffic(g *topology.Graph, load Workload) ([]Traffic, error) {
	var all []Traffic
	for _, op := range trafficAlgorithms {
		mcast, err := AlgorithmTraffic(g, op.kind, "mcast", load)
		if err != nil {
			return nil, err
		}
		for _, algo := range op.algos {
			t := mcast
			if algo != "mcast" {
				if t, err = AlgorithmTraffic(g, op.kind, algo, load); err != nil {
					return nil, err
				}
			}
			t.Ratio = 1
			if mcast.BlockLinks > 0 { // one host alone sends nothing
				t.Ratio = float64(t.BlockLinks) / float64(mcast.BlockLinks)
			}
			all = append(all, t)
		}
	}
	return all, nil
}

// AlgorithmTraffic counts the traffic of one algorithm of Allgather or Broadcast. Its Ratio is not set.
func AlgorithmTraffic(g *topology.Graph, kind p2p.Kind, algo string, load Workload) (Traffic, error) {
	switch limit := load.maxHosts(); {
	case g.Hosts > limit:
		return Traffic{}, fmt.Errorf("%d hosts are too many to count; want at most %d", g.Hosts, limit)
	case load.Bytes < 1:
		return Traffic{}, fmt.Errorf("blocks of %d bytes: want 1 or more", load.Bytes)
	case kind != p2p.Allgather && kind != p2p.Broadcast:
		return Traffic{}, fmt.Errorf("no traffic model for %v: want allgather or broadcast", kind)
	}
	t := Traffic{
		Topology: g.Name, Op: kind.String(), Algo: algo, Nodes: g.Hosts, Bytes: load.Bytes,
		PayloadByLink: make([]uint64, len(g.Links)),
	}
	var busy float64 // bytes that a host link could carry in the time of the transfer
	var err error
	if algo == "mcast" {
		busy, err = t.multicast(g, kind, load)
	} else {
		busy, err = t.pointToPoint(g, kind, load)
	}
	if err != nil {
		return Traffic{}, fmt.Errorf("%s: %w", algo, err)
	}
	t.TierBytes = g.ByTier(t.PayloadByLink)
	for _, n := range t.TierBytes {
		t.BlockLinks += int64(n)
	}
	t.BlockLinks /= load.Bytes // algorithms send whole blocks
	if load.Rate > 0 && busy > 0 {
		received := float64(load.Bytes)
		if kind == p2p.Allgather {
			received *= float64(g.Hosts - 1)
		}
		t.TimeUS, t.LineRateShare = busy*8e6/load.Rate, received/busy
	}
	return t, nil
}

func (w Workload) maxHosts() int {
	if w.Rate > 0 {
		return MaxTimedHosts
	}
	return MaxTrafficHosts
}

// blockSizes returns the size of each rank's block. Rank 0 is the root of a Broadcast.
func (w Workload) blockSizes(kind p2p.Kind, ranks int) []int64 {
	counts := make([]int64, ranks)
	for i := range counts {
		if kind == p2p.Allgather || i == 0 {
			counts[i] = w.Bytes
		}
	}
	return counts
}
