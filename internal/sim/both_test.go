package sim

import (
	"fmt"
	"testing"

	"github.com/allcast/allcast/internal/testenv"
)

// Claim C2, Appendix B: concurrent Allgather and Reduce-Scatter take 2 - 2/P times as long with rings
// as with multicast and in-network reduction.
func TestBothAtOnce(t *testing.T) {
	t.Parallel()
	for _, p := range []int{4, 8, 16} {
		if testenv.Race && p > 4 {
			break // the run without the race detector covers all sizes
		}
		run := func(algo string) *Result {
			cfg := base(t, bothAtOnce, fmt.Sprintf("star:%d", p), 1<<20)
			cfg.Algo, cfg.Chains = algo, 0
			r, err := Run(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if !r.Verified || r.Algo != algo {
				t.Fatalf("%s: %+v", algo, r)
			}
			t.Logf("P=%d %s: %.0f us, bound %.0f, parts %+v", p, algo, r.TimeUS, r.BoundUS, r.Parts)
			return r
		}
		want := 2 - 2/float64(p)
		if s := run("ring+ring").TimeUS / run("mcast+inc").TimeUS; s < 0.95*want || s > 1.05*want {
			t.Errorf("P=%d: speed-up %.3f, want %.3f", p, s, want)
		}
		run("mcast+ring")
		run("ring+inc")
	}
}

// No pair is faster than its bound, even where headers are most of the traffic.
func TestBothAtOnceKeepTheBound(t *testing.T) {
	slow(t)
	for _, topo := range []string{"star:1", "star:2", "star:3", "fat-tree:4,2,1"} {
		for _, algo := range Algorithms[bothAtOnce] {
			for _, chunk := range []int{1, 64, 4096} {
				cfg := base(t, bothAtOnce, topo, 200*int64(chunk))
				cfg.Algo, cfg.Chunk, cfg.Latency, cfg.Chains = algo, chunk, 0, 0
				r, err := Run(cfg)
				if err != nil {
					t.Fatal(err)
				}
				if !r.Verified || r.TimeUS < r.BoundUS {
					t.Errorf("%s on %s, chunks of %d: verified %v, %.1f us, bound %.1f",
						algo, topo, chunk, r.Verified, r.TimeUS, r.BoundUS)
				}
			}
		}
	}
}
