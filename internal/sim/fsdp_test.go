package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/testenv"
	"github.com/allcast/allcast/internal/topology"
	"github.com/allcast/allcast/internal/units"
)

func fsdpBase(t *testing.T, topo, algo string) FSDPConfig {
	t.Helper()
	g, err := topology.Parse(topo)
	if err != nil {
		t.Fatal(err)
	}
	return FSDPConfig{
		Config: Config{
			Topology: g, Algo: algo, Network: Network{Rate: 100e9, Latency: 500 * time.Nanosecond}, Seed: 1,
		},
		Layers: 3, LayerBytes: 256 << 10, Compute: 50 * time.Microsecond, Prefetch: 1,
	}
}

func runStep(t *testing.T, cfg FSDPConfig) *FSDPResult {
	t.Helper()
	r, err := RunFSDP(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Verified || r.Algo != cfg.Algo || r.Collectives != 3*cfg.Layers-1 {
		t.Fatalf("%s on %s: verified %v, %d of %d collectives, wrong on %d, violation %q, errors %+v",
			cfg.Algo, cfg.Topology.Name, r.Verified, r.Collectives, 3*cfg.Layers-1, r.Wrong, r.Violation, r.Errors)
	}
	if sum := r.ComputeUS + r.ExposedAllgatherUS + r.ExposedReduceScatterUS; math.Abs(sum-r.StepUS) > 1e-6*r.StepUS {
		t.Errorf("%s: compute and exposed times sum to %.3f us, the step takes %.3f", cfg.Algo, sum, r.StepUS)
	}
	return r
}

func TestFSDPVerified(t *testing.T) {
	for _, topo := range []string{"star:1", "star:4", "star:8", "fat-tree:9,3,2"} {
		for _, algo := range FSDPAlgorithms() {
			for _, prefetch := range []int{0, 1, 3} {
				for _, layers := range []int{1, 3} {
					cfg := fsdpBase(t, topo, algo)
					cfg.Prefetch, cfg.Layers, cfg.LayerBytes, cfg.Chunk = prefetch, layers, 30001, 1000
					checkTimeline(t, cfg, runStep(t, cfg))
				}
			}
		}
	}
}

// checkTimeline checks rank 0's timeline against the rules of a step.
func checkTimeline(t *testing.T, cfg FSDPConfig, r *FSDPResult) {
	t.Helper()
	find := func(kind string, layer int, backward bool) *Span {
		for i, s := range r.Timeline {
			if s.Kind == kind && s.Layer == layer && s.Backward == backward {
				return &r.Timeline[i]
			}
		}
		t.Fatalf("%s: no %s of layer %d, backward %v, in %+v", cfg.Algo, kind, layer, backward, r.Timeline)
		return nil
	}
	if want := 5*cfg.Layers - 1; len(r.Timeline) != want {
		t.Fatalf("%s: %d spans, want %d: %+v", cfg.Algo, len(r.Timeline), want, r.Timeline)
	}
	var computes []*Span // in order of use
	for i := range 2 * cfg.Layers {
		layer, backward := i, i >= cfg.Layers
		if backward {
			layer = 2*cfg.Layers - 1 - i
		}
		c := find("compute", layer, backward)
		if i > 0 && c.Start < computes[i-1].End {
			t.Errorf("%s: layer %d was computed before the previous layer", cfg.Algo, layer)
		}
		if i != cfg.Layers {
			g := find("allgather", layer, backward)
			if c.Start < g.End {
				t.Errorf("%s: layer %d was computed at %.3f but gathered at %.3f", cfg.Algo, layer, c.Start, g.End)
			}
			if ahead := i - cfg.Prefetch - 1; ahead >= 0 && g.Start < computes[ahead].End {
				t.Errorf("%s: prefetch %d, but the gather for use %d started before use %d ended",
					cfg.Algo, cfg.Prefetch, i, ahead)
			}
		}
		if backward {
			if s := find("reduce-scatter", layer, true); s.Start < c.End {
				t.Errorf("%s: gradients of layer %d were sent before they were computed", cfg.Algo, layer)
			}
		}
		computes = append(computes, c)
	}
}

func TestFSDPSameSeedSameStep(t *testing.T) {
	text := func() string {
		cfg := fsdpBase(t, "fat-tree:8,4,2", "mcast+inc")
		cfg.Reorder, cfg.Loss, cfg.Noise = 0.05, 0.01, 2*time.Microsecond
		r := runStep(t, cfg)
		r.WallMS = 0
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if a, b := text(), text(); a != b {
		t.Errorf("two runs differ:\n%s\n%s", a, b)
	}
}

// With compute far above communication, only the first Allgather and the last Reduce-Scatter are
// exposed.
func TestFSDPComputeBound(t *testing.T) {
	for _, algo := range FSDPAlgorithms() {
		cfg := fsdpBase(t, "star:8", algo)
		cfg.Layers, cfg.Compute = 4, time.Millisecond
		r := runStep(t, cfg)
		wire := float64(cfg.LayerBytes) * 8e6 / cfg.Rate
		scatter := 1.2 * wire
		if strings.HasSuffix(algo, "+inc") {
			scatter += 4 * 3 * 2 * 0.5 // four passes over the three levels of the control tree, with two links each
		}
		if r.ExposedAllgatherUS > 1.2*wire || r.ExposedReduceScatterUS > scatter {
			t.Errorf("%s: exposed %.1f and %.1f us, one collective takes %.1f at line rate",
				algo, r.ExposedAllgatherUS, r.ExposedReduceScatterUS, wire)
		}
		if r.BubblePct > 1 {
			t.Errorf("%s: bubbles take %.2f %%", algo, r.BubblePct)
		}
	}
}

// With communication far above compute, backward is a concurrent Allgather and Reduce-Scatter, and takes
// 2 - 2/P times as long with rings (Appendix B).
func TestFSDPCommunicationBound(t *testing.T) {
	t.Parallel()
	slow(t)
	for _, p := range []int{4, 8} {
		run := func(algo string) *FSDPResult {
			cfg := fsdpBase(t, fmt.Sprintf("star:%d", p), algo)
			cfg.Layers, cfg.LayerBytes, cfg.Compute, cfg.Latency = 6, 1<<20, time.Microsecond, 100*time.Nanosecond
			return runStep(t, cfg)
		}
		rings, net := run("ring+ring"), run("mcast+inc")
		// L-1 Allgathers run beside L Reduce-Scatters. Rings share the link. Multicast and in-network
		// reduction leave only one Reduce-Scatter for the end.
		n, f := 6.0, 1-1/float64(p)
		want := (2*n - 1) * f / (n - 1 + f)
		if s := rings.BackwardUS / net.BackwardUS; s < 0.93*want || s > 1.07*want {
			t.Errorf("P=%d: backward %.1f us with rings and %.1f in the network: speed-up %.3f, want %.3f",
				p, rings.BackwardUS, net.BackwardUS, s, want)
		} else {
			t.Logf("P=%d: speed-up of backward %.3f, want %.3f", p, s, want)
		}
	}
}

// Coarse chunks are a scale model: the time of a step does not depend on the chunk size.
func TestFSDPChunks(t *testing.T) {
	slow(t)
	for _, algo := range FSDPAlgorithms() {
		run := func(chunk int) float64 {
			cfg := fsdpBase(t, "fat-tree:8,4,2", algo)
			cfg.Layers, cfg.LayerBytes, cfg.Compute, cfg.Chunk = 2, 1<<20, 50*time.Microsecond, chunk
			return runStep(t, cfg).StepUS
		}
		fine, coarse := run(4<<10), run(16<<10)
		t.Logf("%s: %.1f us with chunks of 4K, %.1f with 16K", algo, fine, coarse)
		if math.Abs(coarse/fine-1) > 0.04 {
			t.Errorf("%s: %.1f us with chunks of 4K, %.1f with 16K", algo, fine, coarse)
		}
	}
}

// One wrong bit in one rank's input clears Verified. So does a write to a buffer after its collective.
func TestFSDPFindsWrongData(t *testing.T) {
	for _, algo := range FSDPAlgorithms() {
		cfg := fsdpBase(t, "star:4", algo)
		s, err := cfg.prepare()
		if err != nil {
			t.Fatal(err)
		}
		s.calls[gather][0].mem[1].send[7] ^= 1
		s.w.loop(s.w.limit())
		if r := s.result(&cfg); r.Verified || r.Wrong == 0 || r.Violation != "" {
			t.Errorf("%s: verified %v, wrong on %d ranks, violation %q", algo, r.Verified, r.Wrong, r.Violation)
		}
	}
	cfg := fsdpBase(t, "star:4", "mcast+inc")
	s, err := cfg.prepare()
	if err != nil {
		t.Fatal(err)
	}
	s.w.loop(s.w.limit())
	last := s.calls[scatter][cfg.Layers-1]
	last.mem[2].recv[0]++
	if r := s.result(&cfg); r.Verified || r.Violation == "" {
		t.Errorf("a buffer was written after its collective: verified %v, violation %q", r.Verified, r.Violation)
	}
}

// A run that is cut short is not verified, and its errors name the ranks that did not end.
func TestFSDPCutShort(t *testing.T) {
	cfg := fsdpBase(t, "star:4", "ring+ring")
	s, err := cfg.prepare()
	if err != nil {
		t.Fatal(err)
	}
	s.w.loop(100e6)
	if r := s.result(&cfg); r.Verified || len(r.Errors) != 4 || r.StepUS != 0 {
		t.Errorf("verified %v, step %.1f us, errors %+v", r.Verified, r.StepUS, r.Errors)
	}
}

func TestFSDPBadConfigs(t *testing.T) {
	for name, change := range map[string]func(*FSDPConfig){
		"no topology":   func(c *FSDPConfig) { c.Topology = nil },
		"no layers":     func(c *FSDPConfig) { c.Layers = 0 },
		"no bytes":      func(c *FSDPConfig) { c.LayerBytes = 0 },
		"compute":       func(c *FSDPConfig) { c.Compute = -1 },
		"prefetch":      func(c *FSDPConfig) { c.Prefetch = -1 },
		"pair":          func(c *FSDPConfig) { c.Algo = "mcast" },
		"hours":         func(c *FSDPConfig) { c.Compute = time.Hour },
		"slow":          func(c *FSDPConfig) { c.Rate = 1 },
		"stalled ranks": func(c *FSDPConfig) { c.Stalls = []units.Stall{{}} },
	} {
		cfg := fsdpBase(t, "star:4", "ring+ring")
		change(&cfg)
		if r, err := RunFSDP(cfg); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v, %+v", name, err, r)
		}
	}
}

// A multicast Allgather needs as much of the receivers' links as a ring does, so beside a ring it must
// not take longer than two rings do. Datagrams have larger headers, and store-and-forward costs a little.
func TestMulticastBesideARing(t *testing.T) {
	if testenv.Race {
		t.Skip("takes minutes with the race detector, and the simulator has one goroutine: make test also runs it without")
	}
	for _, c := range []struct {
		topo      string
		layer     int64
		layers    int
		prefetch  int
		chunk     int
		computeUS int // forward time of a layer
	}{
		{topo: "star:8", layer: 16 << 20, layers: 4, prefetch: 1, chunk: 8 << 10, computeUS: 0},
		{topo: "star:8", layer: 16 << 20, layers: 4, prefetch: 1, chunk: 4 << 10, computeUS: 800},
		{topo: "fat-tree:16,4,2", layer: 32 << 20, layers: 4, prefetch: 1, chunk: 16 << 10, computeUS: 0},
		{topo: "fat-tree:16,4,2", layer: 32 << 20, layers: 4, prefetch: 3, chunk: 8 << 10, computeUS: 1500},
		{topo: "fat-tree:64,8,4", layer: 128 << 20, layers: 2, prefetch: 1, chunk: 32 << 10, computeUS: 0},
	} {
		times := map[string]*FSDPResult{}
		for _, algo := range []string{"ring+ring", "mcast+ring"} {
			cfg := fsdpBase(t, c.topo, algo)
			cfg.Layers, cfg.LayerBytes, cfg.Prefetch, cfg.Chunk = c.layers, c.layer, c.prefetch, c.chunk
			cfg.Compute = time.Duration(c.computeUS) * time.Microsecond
			times[algo] = runStep(t, cfg)
		}
		rings, pair := times["ring+ring"], times["mcast+ring"]
		t.Logf("%+v: step %.4f, backward %.4f", c, pair.StepUS/rings.StepUS, pair.BackwardUS/rings.BackwardUS)
		if pair.StepUS > 1.01*rings.StepUS {
			t.Errorf("%s, chunks of %d: a step takes %.0f us, with two rings %.0f", c.topo, c.chunk, pair.StepUS, rings.StepUS)
		}
	}
}

// Lost chunks shrink the window of a multicast beside a ring only until a later chunk shows that they
// were sent.
func TestMulticastBesideARingWithLoss(t *testing.T) {
	cfg := fsdpBase(t, "star:8", "mcast+ring")
	cfg.LayerBytes, cfg.Chunk, cfg.Compute = 4<<20, 4<<10, 0
	clean := runStep(t, cfg)
	cfg.Loss = 0.01
	lossy := runStep(t, cfg)
	t.Logf("%.0f us, without loss %.0f", lossy.StepUS, clean.StepUS)
	if lossy.RepairedChunks == 0 || lossy.StepUS > 1.25*clean.StepUS {
		t.Errorf("with 1 %% loss a step takes %.0f us and repairs %d chunks, without %.0f us",
			lossy.StepUS, lossy.RepairedChunks, clean.StepUS)
	}
}
