package plan

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/figure"
	"github.com/allcast/allcast/internal/topology"
)

// smallPlan is a question that takes a second to answer.
func smallPlan(t *testing.T, spec string, k float64) Config {
	t.Helper()
	g := placedGraph(t, spec, k, "order")
	cfg := Config{
		Network:    Network{Graph: g, Rate: DefaultRate, Latency: DefaultLatency},
		Model:      Model{Params: 1e9, Layers: 3, DType: "bf16", Compute: 20 * time.Millisecond},
		Algorithms: []string{"mcast+ring", "mcast+inc"}, Seed: 1,
	}
	for _, name := range []string{"order", "random:1"} {
		hosts, err := topology.ParsePlacement(name, g.Hosts, nil)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Placements = append(cfg.Placements, Placement{Name: name, Host: hosts})
	}
	return cfg
}

func mustMake(t *testing.T, cfg Config) *Plan {
	t.Helper()
	p, err := Make(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// On an oversubscribed network with ranks at random, multicast is much faster than rings, and the plan says so.
func TestPlan(t *testing.T) {
	p := mustMake(t, smallPlan(t, "fat-tree:16,4,2", 4))
	random := &p.Placed[1]
	rings, multicast, sums := random.row(Baseline), random.row("mcast+ring"), random.row("mcast+inc")
	switch {
	case rings.Step.Source != FromSim || rings.Speedup.Value != 1 || rings.BreakEven != nil:
		t.Errorf("the baseline is %+v", rings)
	case multicast.Speedup.Value < 1.3 || multicast.Speedup.Value > 4 || sums.Speedup.Value < multicast.Speedup.Value:
		t.Errorf("speed-ups are %v and %v", multicast.Speedup, sums.Speedup)
	case multicast.Allgather.Value < 90 || multicast.Allgather.Value > 100 || rings.Allgather.Value > 50:
		t.Errorf("line rates are %v and %v", multicast.Allgather, rings.Allgather)
	case multicast.BreakEven == nil || multicast.BreakEven.Value < 1 || multicast.BreakEven.Value > 4:
		t.Errorf("the break-even is %v", multicast.BreakEven)
	case p.Network.Oversubscription != 4 || p.Switches.Groups != 2 || p.Events == 0:
		t.Errorf("%+v", p)
	}
	compute := 3 * 3 * 20.0
	if d := rings.Step.Value - rings.Exposed.Value - compute; d > 1e-6 || d < -1e-6 {
		t.Errorf("a step of %v with %v exposed does not compute for %v ms", rings.Step, rings.Exposed, compute)
	}
	if advice := strings.Join(p.Advice, "\n"); !strings.Contains(advice, "The fastest is mcast+inc") {
		t.Errorf("the advice is %s", advice)
	}
	for _, f := range p.Figures() {
		var svg bytes.Buffer
		if err := figure.Draw(&svg, &f); err != nil {
			t.Error(err)
		}
	}
}

// Between the points of a curve, the break-even is where the gain is 5 %.
func TestBreakEven(t *testing.T) {
	cfg := smallPlan(t, "fat-tree:16,4,2", 1)
	s := &simulator{network: &cfg.Network, model: &cfg.Model, seed: 1, results: map[string]estimate{}}
	s.progress = func(int, int) {}
	g := cfg.Network.Graph
	curves, err := s.curves(t.Context(), g, []string{Baseline, "mcast+ring"})
	if err != nil {
		t.Fatal(err)
	}
	k, found, err := s.breakEven(t.Context(), g, &curves[0], &curves[1])
	if err != nil || !found || k.Value <= 1 {
		t.Fatalf("break-even %v, %v, %v", k, found, err)
	}
	for _, c := range []struct {
		k      float64
		faster bool
	}{{k.Value / 1.3, false}, {k.Value * 1.3, true}} {
		at, err := withRatio(g, c.k)
		if err != nil {
			t.Fatal(err)
		}
		e, err := s.run(t.Context(), []simulation{
			prepare(at, Baseline, s.model, pointWork), prepare(at, "mcast+ring", s.model, pointWork),
		})
		if err != nil {
			t.Fatal(err)
		}
		if gain := e[0].step / e[1].step; gain >= worthwhile != c.faster {
			t.Errorf("break-even is %.2f, but the gain at %.2f is %.3f", k.Value, c.k, gain)
		}
	}
}

// The same seed gives the same plan, whatever order simulations end in.
func TestSamePlan(t *testing.T) {
	text := func() string {
		b, err := json.Marshal(mustMake(t, smallPlan(t, "fat-tree:8,4,2", 2)))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if a, b := text(), text(); a != b {
		t.Errorf("two plans differ:\n%s\n%s", a, b)
	}
}

// A star has no links between switches: no curves and no break-even.
func TestStar(t *testing.T) {
	p := mustMake(t, smallPlan(t, "star:6", 1))
	if len(p.Placed[0].Curves) > 0 || p.Placed[0].Rows[1].BreakEven != nil || len(p.Figures()) != 2 {
		t.Errorf("%+v", p.Placed[0])
	}
}

func TestBadConfig(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no network":     func(c *Config) { c.Network.Graph = nil },
		"no placement":   func(c *Config) { c.Placements = nil },
		"unknown pair":   func(c *Config) { c.Algorithms = []string{"ring"} },
		"one rank":       func(c *Config) { c.Placements = []Placement{{"x", []int{0}}} },
		"other ranks":    func(c *Config) { c.Placements[1].Host = []int{0, 1} },
		"host not there": func(c *Config) { c.Placements = []Placement{{"x", []int{0, 99}}} },
		"no layers":      func(c *Config) { c.Model.Layers = 0 },
	} {
		cfg := smallPlan(t, "fat-tree:8,4,2", 1)
		change(&cfg)
		if _, err := Make(t.Context(), cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cfg := smallPlan(t, "fat-tree:8,4,2", 1)
	cfg.Progress = func(int, int) { cancel() }
	if _, err := Make(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that the plan was cancelled", err)
	}
}
