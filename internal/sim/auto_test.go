package sim

import (
	"fmt"
	"testing"
)

// The algorithm that auto chooses takes at most a tenth longer than the best one.
func TestAutoChoosesWell(t *testing.T) {
	t.Parallel()
	slow(t)
	collectives := []string{"broadcast", "allgather", "reduce-scatter", "allreduce"}
	checkAuto(t, collectives, []string{"star:2", "star:3", "star:8", "star:13", "fat-tree:32,4,4"},
		[]int64{64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10})
	exchanges := []string{"gather", "scatter", "reduce", "alltoall"}
	checkAuto(t, exchanges, []string{"star:2", "star:3", "star:5", "star:8", "star:13", "fat-tree:32,4,4"},
		[]int64{1, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10})
	more := append(exchanges, "gatherv", "scatterv", "alltoallv", "sendrecv", "allgather", "reduce-scatter")
	checkAuto(t, more, []string{"star:5", "fat-tree:8,3,2"}, []int64{1, 1 << 20})
}

func checkAuto(t *testing.T, ops, topologies []string, sizes []int64) {
	t.Helper()
	worst := 1.0
	for _, op := range ops {
		for _, topo := range topologies {
			for _, n := range sizes {
				run := func(algo string, chains int, segment int64) *Result {
					cfg := base(t, op, topo, n)
					cfg.Algo, cfg.Chains, cfg.Segment = algo, chains, segment
					r, err := Run(cfg)
					if err != nil {
						t.Fatal(err)
					}
					if !r.Verified {
						t.Fatalf("%s %s %s: not verified", op, topo, r.Algo)
					}
					return r
				}
				best, by := 1e18, ""
				for _, a := range Algorithms[op] {
					for _, v := range variants(op, a, n) {
						if r := run(a, v.chains, v.segment); r.TimeUS < best {
							best, by = r.TimeUS, fmt.Sprint(a, v)
						}
					}
				}
				r := run("auto", 0, 0)
				if r.Auto == "" {
					t.Fatal("no reason given")
				}
				worst = max(worst, r.TimeUS/best)
				if r.TimeUS > 1.1*best {
					t.Errorf("%s of %d bytes on %s: auto %.1f us (%s), best %.1f us (%s)",
						op, n, topo, r.TimeUS, r.Auto, best, by)
				}
			}
		}
	}
	t.Logf("worst ratio to the best: %.3f", worst)
}

type variant struct {
	chains  int
	segment int64
}

// variants returns the parameters worth trying for an algorithm.
func variants(op, algo string, n int64) []variant {
	switch {
	case algo == "mcast" && op == "allgather":
		return []variant{{1, 0}, {1000, 0}}
	case algo == "mcast" || algo == "inc" || algo == "linear" || algo == "pairwise" || n <= 4096:
		return []variant{{1, 0}}
	}
	return []variant{{1, 0}, {1, 4096}, {1, 16 << 10}}
}
