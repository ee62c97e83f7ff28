package sim

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// A Reduce-Scatter of N bytes per rank by aggregators takes (P-1)N bytes up each host's link, and N down. Links between
// switches carry each sum once per direction at most.
func TestReductionTraffic(t *testing.T) {
	const n = 256 << 10
	for _, topo := range []string{"star:2", "star:8", "fat-tree:16,4,2", "fat-tree3:32,8"} {
		cfg := base(t, "reduce-scatter", topo, n)
		cfg.Algo = "inc"
		r := mustReduce(t, cfg)
		g := cfg.Topology
		p := float64(g.Hosts)
		for i, l := range g.Links {
			want := p * n // a sum of every chunk
			switch {
			case g.IsHost(l.From):
				want = (p - 1) * n
			case g.IsHost(l.To):
				want = n
			}
			payload := float64(r.PayloadByLink[i])
			if g.IsHost(l.From) || g.IsHost(l.To) {
				// Headers and control messages come on top, the latter mostly at the top of the control tree.
				if payload != want || math.Abs(float64(r.ByLink[i])/want-1) > 0.08 {
					t.Errorf("%s, link %d: %.0f bytes of payload, %d in all; want %.0f", topo, i, payload, r.ByLink[i], want)
				}
			} else if payload > want {
				t.Errorf("%s, link %d between switches: %.0f bytes of payload, want at most %.0f", topo, i, payload, want)
			}
		}
		if r.DroppedChunks+r.DuplicateChunks+r.RepairedChunks > 0 || r.Fallback != "" {
			t.Errorf("%s: %+v, fallback %q", topo, r.ChunkCounts, r.Fallback)
		}
	}
}

// With losses at every hop, multicast and aggregators are still faster than two rings without any.
func TestBothAtOnceWithLosses(t *testing.T) {
	t.Parallel()
	slow(t)
	for _, topo := range []string{"star:8", "fat-tree:16,4,2"} {
		run := func(algo string, loss float64) *Result {
			cfg := base(t, bothAtOnce, topo, 1<<20)
			cfg.Algo, cfg.Chains, cfg.Loss = algo, 0, loss
			return mustReduce(t, cfg)
		}
		rings, sums := run("ring+ring", 0), run("mcast+inc", 0.01)
		if s := rings.TimeUS / sums.TimeUS; s < 1.3 || sums.DroppedChunks == 0 {
			t.Errorf("%s: %.2f times as fast as two rings with %d chunks lost, want 1.3", topo, s, sums.DroppedChunks)
		}
		if sums.Fallback != "" {
			t.Errorf("%s: fell back: %s", topo, sums.Fallback)
		}
	}
}

// Of a sum of 64 contributions, every second one lacks a contribution if one datagram in a hundred is lost. Repairs
// take their time in parallel, not one after the other.
func TestReductionOfManyWithLosses(t *testing.T) {
	t.Parallel()
	slow(t)
	for topo, limit := range map[string]float64{"star:32": 1.5, "fat-tree:64,8,2": 1.5} {
		run := func(loss float64) *Result {
			cfg := base(t, "reduce-scatter", topo, 1<<20)
			cfg.Algo, cfg.Loss = "inc", loss
			return mustReduce(t, cfg)
		}
		clean, lossy := run(0), run(0.01)
		if ratio := lossy.TimeUS / clean.TimeUS; ratio > limit || lossy.DroppedChunks == 0 {
			t.Errorf("%s: %.2f times as long with %d chunks lost, want at most %.1f", topo, ratio, lossy.DroppedChunks, limit)
		}
		if lossy.Fallback != "" {
			t.Errorf("%s: fell back: %s", topo, lossy.Fallback)
		}
	}
}

// An aggregator crashes, restarts or stops at any time. Every call completes with the right sum in bounded time.
func TestAggregatorFaults(t *testing.T) {
	t.Parallel()
	for _, f := range []struct {
		name     string
		fault    AggregatorFault
		fallback bool
		limit    time.Duration
	}{
		{"crash", AggregatorFault{Crash: true}, true, 2 * time.Second},
		{"crash that ranks notice", AggregatorFault{Crash: true, Reset: true}, true, time.Second},
		{"restart", AggregatorFault{Crash: true, For: 20 * time.Microsecond}, false, time.Second},
		{"stop", AggregatorFault{For: 5 * time.Millisecond}, false, time.Second},
		{"long stop", AggregatorFault{For: time.Minute}, true, 2 * time.Second},
	} {
		for _, op := range []string{"reduce-scatter", "allreduce", bothAtOnce} {
			for node := range 4 {
				cfg := base(t, op, "fat-tree:9,3,2", 200_000)
				switch cfg.Algo = "inc"; op {
				case "allreduce":
					cfg.Bytes *= 9
				case bothAtOnce:
					cfg.Algo, cfg.Chains = "mcast+inc", 0
				}
				f.fault.Node, f.fault.At = node, 40*time.Microsecond
				cfg.Aggregators = []AggregatorFault{f.fault}
				r := mustReduce(t, cfg)
				what := fmt.Sprintf("%s with a %s of aggregator %d: %.0f us, fallback %q", op, f.name, node, r.TimeUS, r.Fallback)
				if r.TimeUS > float64(f.limit.Microseconds()) || (r.Fallback != "") != f.fallback {
					t.Error(what)
				}
			}
		}
	}
}

// A rank that dies during a reduction fails it on all others, with its name.
func TestReductionRankCrashes(t *testing.T) {
	for _, us := range []int64{0, 2, 20, 50} {
		at := time.Duration(us * int64(time.Microsecond))
		cfg := base(t, "reduce-scatter", "fat-tree:9,3,2", 200_000)
		cfg.Algo, cfg.Timeout = "inc", 50*time.Millisecond
		cfg.Crashes = []Crash{{Rank: 4, At: at}}
		r, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Errors) != 8 || r.Wrong > 0 || r.Violation != "" {
			t.Fatalf("crash at %v: %+v", at, r)
		}
		for _, e := range r.Errors {
			if e.Culprit != 4 || e.Op != "reduce-scatter" || e.Missing == "" {
				t.Errorf("crash at %v: %+v", at, e)
			}
		}
	}
}
