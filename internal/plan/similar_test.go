package plan

import (
	"math"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/testenv"
)

// pairsToRun returns all pairs, or one under the race detector, which makes simulations ten times as long.
func pairsToRun() []string {
	if testenv.Race {
		return []string{"mcast+ring"}
	}
	return sim.FSDPAlgorithms()
}

// A step takes as long on a similar network as on the full one.
func TestSimilarNetwork(t *testing.T) {
	m := &Model{Params: 7e9, Layers: 32, DType: "bf16", Compute: 20 * time.Millisecond}
	n := &Network{Rate: DefaultRate, Latency: DefaultLatency}
	for _, c := range []struct {
		spec, placement string
		k               float64
	}{
		{"fat-tree:48,6,4", "random:1", 4},
		{"fat-tree3:54,6", "order", 2},
	} {
		g := placedGraph(t, c.spec, c.k, c.placement)
		for _, pair := range pairsToRun() {
			full := simulation{pair: pair, layers: []int{3}, similar: similar{g: g, layer: float64(m.LayerBytes())}}
			small := simulation{pair: pair, layers: []int{3}, similar: findSimilar(g, pair, full.layer, 16), scaled: true}
			want, got := mustRun(t, &full, n, m), mustRun(t, &small, n, m)
			if small.g.Hosts > 16 || got.events > want.events/4 {
				t.Errorf("%s %s: %s takes %d events, the full network %d", c.spec, pair, small.g.Name, got.events, want.events)
			}
			if math.Abs(got.step/want.step-1) > 0.1 {
				t.Errorf("%s at %v:1, %s, %s: %.0f ms on %s, %.0f ms on the full network", c.spec, c.k, c.placement, pair,
					got.step*1e3, small.g.Name, want.step*1e3)
			}
		}
	}
}

func mustRun(t *testing.T, s *simulation, n *Network, m *Model) estimate {
	t.Helper()
	e, err := s.run(n, m, 1)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Fewer layers and fewer hosts together still give the time of the whole step.
func TestScaledStep(t *testing.T) {
	m := &Model{Params: 7e9, Layers: 16, DType: "bf16", Compute: 20 * time.Millisecond}
	n := &Network{Rate: DefaultRate, Latency: DefaultLatency}
	g := placedGraph(t, "fat-tree:24,4,3", 4, "random:1")
	for _, pair := range pairsToRun() {
		full, small := prepare(g, pair, m, 1e9), prepare(g, pair, m, work(16, shallowLayers)+work(16, deepLayers))
		if full.scaled || !small.scaled || small.g.Hosts > 16 {
			t.Fatalf("%s: %d hosts scaled %v, %d hosts scaled %v", pair, full.g.Hosts, full.scaled, small.g.Hosts, small.scaled)
		}
		want, got := mustRun(t, &full, n, m), mustRun(t, &small, n, m)
		if want.source != FromSim || got.source != FromScaledSim {
			t.Errorf("%s: sources are %q and %q", pair, want.source, got.source)
		}
		if math.Abs(got.step/want.step-1) > 0.1 {
			t.Errorf("%s: %.0f ms scaled up, %.0f ms simulated", pair, got.step*1e3, want.step*1e3)
		}
	}
}

// The bounds of similar networks are near those of large networks of all kinds.
func TestSimilarBounds(t *testing.T) {
	for _, c := range []struct {
		spec string
		k    float64
	}{
		{"star:500", 1},
		{"fat-tree:188,12,6", 1},
		{"fat-tree:1024,32,8", 4},
		{"fat-tree3:1024,32", 4},
		{"fat-tree:600,3,10", 2},
	} {
		for _, placement := range []string{"order", "random:1", "stride:7"} {
			g := placedGraph(t, c.spec, c.k, placement)
			for _, pair := range append(sim.FSDPAlgorithms(), ring, mcast) {
				s := findSimilar(g, pair, 4e8, 64)
				if s.g.Hosts > 64 || s.distance > 0.1 {
					t.Errorf("%s at %v:1, %s, %s: bounds of %s differ by %.0f %%",
						c.spec, c.k, placement, pair, s.g.Name, 100*s.distance)
				}
			}
		}
	}
}

// The work of a plan is bounded for any size, so an answer takes about the same time for all networks.
func TestWorkIsBounded(t *testing.T) {
	specs := []string{"star:2", "fat-tree:32,4,4", "fat-tree:188,12,6", "fat-tree3:1024,32", "fat-tree:4096,64,16"}
	for _, spec := range specs {
		for _, layers := range []int{1, 8, 80, MaxLayers} {
			m := &Model{Params: 70e9, Layers: layers, DType: "bf16"}
			s := prepare(placedGraph(t, spec, 1, "random:1"), Baseline, m, pointWork)
			total := 0.0
			for _, l := range s.layers {
				total += work(s.g.Hosts, l)
			}
			if total > pointWork {
				t.Errorf("%s with %d layers: %.2g events, want at most %.2g", spec, layers, total, float64(pointWork))
			}
		}
	}
}
