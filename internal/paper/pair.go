package paper

import (
	"context"
	"fmt"
	"math"

	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/sim"
)

// pairTolerance is how far the simulator may be from the formula of Appendix B.
const pairTolerance = 0.05

// pairRun is a simulated Allgather and Reduce-Scatter at once.
type pairRun struct {
	Ranks   int
	Pair    string
	Bytes   int64
	Speedup float64 // over ring+ring
	*sim.Result
}

// Formula is the speedup of multicast and in-network reduction by Appendix B.
func (r pairRun) Formula() float64 { return 2 - 2/float64(r.Ranks) }

// SentBlocks and ReceivedBlocks are the payload that the busiest rank of a part moves, in blocks.
func (r pairRun) SentBlocks(part int) float64 { return float64(r.Parts[part].Sent) / float64(r.Bytes) }

func (r pairRun) ReceivedBlocks(part int) float64 {
	return float64(r.Parts[part].Received) / float64(r.Bytes)
}

// speedupPairs are the pairs of algorithms, the reference first.
var speedupPairs = []string{"ring+ring", "mcast+ring", "ring+inc", "mcast+inc"}

// pairRuns simulates all pairs on stars, and two of them on the testbed.
func pairRuns(ctx context.Context, e *Env) ([]pairRun, error) {
	return cached(e, "pairs", func() ([]pairRun, error) {
		ranks, bytes := []int{4, 8, 16, 64, 188}, int64(1<<20)
		if e.Quick {
			ranks, bytes = []int{4, 8, 16, 64}, 256<<10
		}
		var runs []pairRun
		steps := count{env: e, total: len(ranks) * len(speedupPairs)}
		for _, p := range ranks {
			spec, pairs := fmt.Sprintf("star:%d", p), speedupPairs
			if p == 188 {
				spec, pairs = Testbed, []string{"ring+ring", "mcast+inc"}
			}
			var ref float64
			for _, pair := range pairs {
				steps.next("%s on %s", pair, spec)
				r, err := run(ctx, mustParse(spec), "allgather+reduce-scatter", pair, bytes, 0)
				if err != nil {
					return nil, err
				}
				if ref == 0 {
					ref = r.TimeUS
				}
				runs = append(runs, pairRun{p, pair, bytes, ref / r.TimeUS, r})
			}
		}
		return runs, nil
	})
}

// modelSpeedup returns the model of multicast and in-network reduction, and whether it is the paper's formula.
func modelSpeedup(p int) (s model.Speedup, exact bool, err error) {
	all, err := model.Speedups(p)
	if err != nil {
		return s, false, err
	}
	for _, s := range all {
		if s.Algo == "mcast+inc" {
			n := float64(p)
			exact = math.Abs(s.Speedup-(2-2/n)) < 1e-9 &&
				math.Abs(s.AllgatherSendShare-1/n) < 1e-9 && math.Abs(s.ReduceScatterSendShare-(1-1/n)) < 1e-9
			return s, exact, nil
		}
	}
	return s, false, fmt.Errorf("the model has no pair mcast+inc for %d ranks", p)
}
