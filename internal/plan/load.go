package plan

import (
	"strings"

	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/topology"
)

// Names of the collectives' algorithms, as in the pairs of sim.FSDPAlgorithms.
const (
	ring  = "ring"
	mcast = "mcast"
	inc   = "inc"
	none  = ""
)

// parts returns the algorithms of the Allgather and of the Reduce-Scatter of a pair. An Allgather alone is a pair with
// no second part.
func parts(pair string) (gather, scatter string) {
	gather, scatter, _ = strings.Cut(pair, "+")
	return gather, scatter
}

// loads holds the payload that each link carries, by topology.LinkID, in bytes.
type loads []float64

// loadOf counts what the links carry in one collective with blocks of that many bytes. Rank i is on host i. Rings of
// both collectives send to the right neighbour. In the sums of aggregators, contributions go up and results come down.
func loadOf(g *topology.Graph, algo string, block float64) loads {
	l := make(loads, len(g.Links))
	switch algo {
	case none:
	case mcast:
		groups := model.Trees(g)
		for sub := range groups {
			l.addTree(g, g.Tree(sub), func(below int) (up, down float64) {
				return float64(below) * block / float64(groups), float64(g.Hosts-below) * block / float64(groups)
			})
		}
	case inc:
		l.addTree(g, sim.AggregationTree(g), func(below int) (up, down float64) {
			blocks := g.Hosts
			if below == 1 { // the only contributor below does not send its own block
				blocks--
			}
			return float64(blocks) * block, float64(below) * block
		})
	default:
		for r := range g.Hosts {
			for _, link := range g.Route(r, (r+1)%g.Hosts) {
				l[link] += float64(g.Hosts-1) * block
			}
		}
	}
	return l
}

// addTree adds the load of each cable of a tree, which depends on the number of hosts below the cable.
func (l loads) addTree(g *topology.Graph, t *topology.Tree, load func(below int) (up, down float64)) {
	below := make([]int, g.Nodes())
	for n := range topology.NodeID(g.Nodes()) { // lower levels come first
		if g.IsHost(n) {
			below[n] = 1
		}
		for _, link := range t.Ports[n] {
			upper := g.Links[link].To
			if g.Level(upper) < g.Level(n) {
				continue
			}
			below[upper] += below[n]
			up, down := load(below[n])
			l[link] += up
			l[g.Reverse(link)] += down
		}
	}
}

// plus returns the sum of two loads.
func (l loads) plus(other loads) loads {
	sum := make(loads, len(l))
	for i := range l {
		sum[i] = l[i] + other[i]
	}
	return sum
}

// seconds returns the time that the busiest link takes for its load. Rate is the rate of a host's link in bit/s.
func (l loads) seconds(g *topology.Graph, rate float64) float64 {
	longest := 0.0
	for i, bytes := range l {
		longest = max(longest, bytes*8/(rate*g.Links[i].Multiple))
	}
	return longest
}
