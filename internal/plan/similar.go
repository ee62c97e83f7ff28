package plan

import (
	"fmt"
	"math"

	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/topology"
)

// bounds are the times that the busiest link takes in seconds: for an Allgather, for a Reduce-Scatter, and for both at
// once. With the compute time, they determine how long a step takes.
type bounds [3]float64

// boundsOf returns the bounds of a pair of algorithms, for a layer of that many bytes.
func boundsOf(g *topology.Graph, pair string, layer, rate float64) bounds {
	a, r := parts(pair)
	block := layer / float64(g.Hosts)
	gather, scatter := loadOf(g, a, block), loadOf(g, r, block)
	return bounds{gather.seconds(g, rate), scatter.seconds(g, rate), gather.plus(scatter).seconds(g, rate)}
}

// distance returns the largest relative difference between two bounds.
func (b bounds) distance(other bounds) float64 {
	largest := 0.0
	for i := range b {
		if b[i] == other[i] { // both may be 0
			continue
		}
		largest = max(largest, math.Abs(math.Log(b[i]/other[i])))
	}
	return math.Exp(largest) - 1
}

// similar is a smaller network on which a step takes as long as on the full one.
type similar struct {
	g        *topology.Graph
	layer    float64 // bytes of a layer, so that a host receives as much as on the full network
	distance float64 // of the bounds of both networks
}

// maxModelLeaves is the number of leaves of a similar network. More leaves change little: what matters is how many
// hosts share the links of a leaf.
const maxModelLeaves = 8

// Candidates of a similar network: placements and hashes of routes. Among that many, flows collide as often as on the
// busiest link of thousands.
const modelSeeds = 64

// findSimilar returns the network of at most that many hosts whose bounds are the nearest to the full network's. It
// keeps the hosts per leaf as far as possible, and searches placements, routes and rates of uplinks.
func findSimilar(full *topology.Graph, pair string, layer float64, limit int) similar {
	want := boundsOf(full, pair, layer, 1)
	best := similar{distance: math.Inf(1)}
	small := shrink(full, limit, usesRing(pair))
	size := layer * share(full.Hosts) / share(small.Hosts)
	for _, g := range arrangements(small, pair) {
		for _, candidate := range withUplinks(g, full, pair, size, want) {
			if d := boundsOf(candidate, pair, size, 1).distance(want); d < best.distance-1e-6 {
				best = similar{g: candidate, layer: size, distance: d}
			}
		}
	}
	return best
}

// share is the part of a layer that a rank receives.
func share(ranks int) float64 { return float64(ranks-1) / float64(ranks) }

// usesRing reports whether a ring is part of a pair.
func usesRing(pair string) bool {
	a, r := parts(pair)
	return a == ring || r == ring
}

// shrink returns a network with the same hosts per leaf and the same spines above a leaf, but with fewer leaves. If
// two leaves have too many hosts, there are fewer hosts per leaf. For rings, there are then as many fewer spines,
// because flows share uplinks. The load of trees does not depend on the hosts per leaf.
func shrink(full *topology.Graph, limit int, rings bool) *topology.Graph {
	if full.Racks() == 1 {
		return mustParse(fmt.Sprintf("star:%d", limit))
	}
	most := 0
	for _, hosts := range full.ByRack(allRanks(full.Hosts)) {
		most = max(most, len(hosts))
	}
	leaves := max(2, min(limit/most, full.Racks(), maxModelLeaves))
	perLeaf := min(most, max(1, limit/leaves))
	spines := full.Shape().Spines
	if rings {
		spines = max(1, (spines*perLeaf+most/2)/most)
	}
	return mustParse(fmt.Sprintf("fat-tree:%d,%d,%d", leaves*perLeaf, leaves, spines))
}

// mustParse parses a spec that this package made.
func mustParse(spec string) *topology.Graph {
	g, err := topology.Parse(spec)
	if err != nil {
		panic(err)
	}
	return g
}

func allRanks(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// arrangements returns the network with different placements and routes. Only rings depend on them.
func arrangements(g *topology.Graph, pair string) []*topology.Graph {
	all := []*topology.Graph{g}
	if g.Racks() == 1 || !usesRing(pair) {
		return all
	}
	for seed := range uint64(modelSeeds) {
		random, err := topology.ParsePlacement(fmt.Sprintf("random:%d", seed), g.Hosts, nil)
		if err != nil {
			panic(err) // the form is right
		}
		for _, placement := range [][]int{random, interleave(g.ByRack(random))} {
			placed, err := g.Place(placement)
			if err != nil {
				panic(err) // each host is in it once
			}
			all = append(all, placed, placed.Hash(seed))
		}
	}
	return all
}

// interleave takes hosts from the leaves in turn, so that neighbours in the ring are on different leaves. In a network
// of many leaves, they almost always are.
func interleave(leaves [][]int) (hosts []int) {
	for i := 0; ; i++ {
		before := len(hosts)
		for _, leaf := range leaves {
			if i < len(leaf) {
				hosts = append(hosts, leaf[i])
			}
		}
		if len(hosts) == before {
			return hosts
		}
	}
}

// withUplinks returns the network with the uplinks of the full one, with uplinks that have the same rate in all trees
// together, and with uplinks on which a ring takes as long.
func withUplinks(g, full *topology.Graph, pair string, layer float64, want bounds) (all []*topology.Graph) {
	if g.Racks() == 1 {
		return []*topology.Graph{g}
	}
	multiple := full.Shape().Uplink
	trees := float64(model.Trees(full)) / float64(model.Trees(g))
	multiples := []float64{multiple, multiple * trees}
	a, r := parts(pair)
	for i, algo := range []string{a, r} {
		if algo == ring {
			between := loadOf(g, ring, layer/float64(g.Hosts)).betweenSwitches(g)
			multiples = append(multiples, between*8/want[i])
		}
	}
	for _, m := range multiples {
		if graph, err := g.Uplinks(m); err == nil {
			all = append(all, graph)
		}
	}
	return all
}

// betweenSwitches returns the largest load of a link between switches.
func (l loads) betweenSwitches(g *topology.Graph) float64 {
	most := 0.0
	for i, bytes := range l {
		if link := g.Links[i]; !g.IsHost(link.From) && !g.IsHost(link.To) {
			most = max(most, bytes)
		}
	}
	return most
}
