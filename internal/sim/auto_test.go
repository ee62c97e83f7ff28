package sim

import (
	"fmt"
	"math"
	"testing"

	"github.com/allcast/allcast/internal/model"
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

// The cost model's time of every algorithm, with its chains and segment, is close to the simulated one. auto chooses
// by these times, and reports them.
func TestAutoPredicts(t *testing.T) {
	t.Parallel()
	slow(t)
	for _, topo := range []string{"star:8", "fat-tree:16,4,4"} {
		for _, op := range []string{"broadcast", "allgather", "reduce-scatter"} {
			for _, n := range []int64{16 << 10, 64 << 10} {
				for _, e := range predict(t, op, topo, n) {
					cfg := base(t, op, topo, n)
					cfg.Algo, cfg.Chains, cfg.Segment = e.Algo, e.Chains, e.Segment
					r, err := Run(cfg)
					if err != nil {
						t.Fatal(err)
					}
					if off := e.NS/1e3/r.TimeUS - 1; math.Abs(off) > 0.1 {
						t.Errorf("%s of %d bytes on %s by %v: %.1f us expected, %.1f us simulated (%+.0f %%)",
							op, n, topo, e, e.NS/1e3, r.TimeUS, 100*off)
					}
				}
			}
		}
	}
}

func predict(t *testing.T, op, topo string, n int64) []model.Estimate {
	t.Helper()
	cfg := base(t, op, topo, n)
	c, err := model.Choose(op, cfg.Topology.Hosts, n, cfg.net())
	if err != nil {
		t.Fatal(err)
	}
	return c.All
}
