package plan

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/topology"
)

// placedGraph returns a network with an oversubscription and a placement.
func placedGraph(t *testing.T, spec string, k float64, placement string) *topology.Graph {
	t.Helper()
	g, err := topology.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	if g, err = g.Oversubscribe(k); err != nil {
		t.Fatal(err)
	}
	hosts, err := topology.ParsePlacement(placement, g.Hosts, nil)
	if err != nil {
		t.Fatal(err)
	}
	if g, err = g.Place(hosts); err != nil {
		t.Fatal(err)
	}
	return g
}

// The loads of the graph are those of the simulator, link by link.
func TestLoadsMatchTheSimulator(t *testing.T) {
	for _, c := range []struct{ spec, placement string }{
		{"star:5", "order"},
		{"fat-tree:16,4,2", "order"},
		{"fat-tree:16,4,2", "random:3"},
		{"fat-tree:9,3,2", "random:1"},
		{"fat-tree:5,5,2", "order"}, // leaves with one host
		{"fat-tree3:16,4", "random:2"},
	} {
		g := placedGraph(t, c.spec, 1, c.placement)
		groups := model.Trees(g)
		block := int64(groups) << 12 // so that trees carry the same
		for _, run := range []struct{ op, algo string }{
			{"allgather", ring}, {"allgather", mcast}, {"reduce-scatter", ring}, {"reduce-scatter", inc},
		} {
			r, err := sim.Run(sim.Config{
				Op: run.op, Algo: run.algo, Topology: g, Bytes: block, Seed: 1,
				Network:  sim.Network{Rate: 100e9, Latency: 500 * time.Nanosecond},
				Schedule: sim.Schedule{Chunk: 4096, Subgroups: groups},
			})
			if err != nil || !r.Verified {
				t.Fatalf("%s %s: %v, verified %v", run.op, run.algo, err, r.Verified)
			}
			for link, bytes := range loadOf(g, run.algo, float64(block)) {
				if got := float64(r.PayloadByLink[link]); math.Abs(got-bytes) > 1e-6*bytes {
					t.Errorf("%s, placement %s, %s by %s: link %d (%s) carries %.0f bytes in the simulator, %.0f on the graph",
						c.spec, c.placement, run.op, run.algo, link, g.Tier(topology.LinkID(link)), got, bytes)
				}
			}
		}
	}
}

// A step gathers all layers but one twice, and scatters each once.
func TestStepLoad(t *testing.T) {
	g := placedGraph(t, "fat-tree:8,2,2", 1, "order")
	m := &Model{Params: 8e6, Layers: 4, DType: "f16"}
	layer := float64(m.LayerBytes())
	tiers := tiersOf(g, stepLoad(g, "ring+ring", m.Layers, m.shard(g.Hosts)))
	var names []string
	for _, tier := range tiers {
		names = append(names, tier.Name)
	}
	if got := strings.Join(names, " "); got != "host_up host_down leaf_up leaf_down" {
		t.Errorf("tiers are %s", got)
	}
	// Each of the 8 ranks sends 7/8 of a layer to its neighbour, 7 + 4 times. Two of them are on the other leaf.
	sent := 11 * layer * 7 / 8
	for i, want := range []Tier{{Links: 8, Max: sent, Total: 8 * sent}, {}, {Links: 4, Max: sent, Total: 2 * sent}} {
		got := tiers[i]
		if want.Links == 0 {
			continue
		}
		if got.Links != want.Links || math.Abs(got.Max/want.Max-1) > 1e-9 || math.Abs(got.Total/want.Total-1) > 1e-9 {
			t.Errorf("%s: %+v, want %+v", got.Name, got, want)
		}
	}
}
