package sim

import (
	"fmt"
	"testing"
)

// Claim C2, Appendix B: Allgather and Reduce-Scatter at once take 2 - 2/P times
// as long by rings as by multicast and in-network reduction.
func TestBothAtOnce(t *testing.T) {
	for _, p := range []int{4, 8, 16} {
		if raceDetector && p > 4 {
			break // the run without the race detector has them all
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
