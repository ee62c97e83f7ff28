package sim

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/topology"
)

// network returns an oversubscribed network with ranks placed on it.
func network(t testing.TB, spec string, ratio float64, placement string) *topology.Graph {
	t.Helper()
	g, err := topology.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	if g, err = g.Oversubscribe(ratio); err != nil {
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

// simulate runs any algorithm.
func simulate(t testing.TB, cfg Config) *Result {
	t.Helper()
	r, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The simulator and the model agree: payload of multicast per link and of a ring per tier exactly, and shares of line
// rate within 10 percentage points.
func TestModelAgrees(t *testing.T) {
	const bytes, rate = 256 << 10, 10e9
	for _, spec := range []string{"fat-tree:32,4,2", "fat-tree:16,4,1", "fat-tree:16,4,2"} {
		for _, placement := range []string{"order", "random:1", "stride:4"} {
			for _, ratio := range []float64{1, 4} {
				t.Run(fmt.Sprintf("%s %s %v", spec, placement, ratio), func(t *testing.T) {
					t.Parallel()
					g := network(t, spec, ratio, placement)
					for _, algo := range []string{"mcast", "ring"} {
						want, err := model.AlgorithmTraffic(g, p2p.Allgather, algo, model.Workload{
							Bytes: bytes, Rate: rate, Subgroups: model.Trees(g), Chunk: 4096,
						})
						if err != nil {
							t.Fatal(err)
						}
						got := simulate(t, Config{
							Op: "allgather", Algo: algo, Topology: g, Bytes: bytes, Seed: 1,
							Schedule: Schedule{Chunk: 4096, Subgroups: model.Trees(g)}, Network: Network{Rate: rate, Latency: 500},
						})
						compare(t, got, want)
					}
				})
			}
		}
	}
}

func compare(t *testing.T, got *Result, want model.Traffic) {
	t.Helper()
	if !got.Verified || got.RepairedChunks > 0 {
		t.Fatalf("%s: verified %v, %d chunks repaired", got.Algo, got.Verified, got.RepairedChunks)
	}
	if got.Algo == "mcast" && !slices.Equal(got.PayloadByLink, want.PayloadByLink) {
		t.Errorf("mcast: payload per link %v, the model says %v", got.PayloadByLink, want.PayloadByLink)
	}
	if !maps.Equal(got.TierBytes, want.TierBytes) {
		t.Errorf("%s: payload per tier %v, the model says %v", got.Algo, got.TierBytes, want.TierBytes)
	}
	if math.Abs(got.LineRateShare-want.LineRateShare) > 0.1 {
		t.Errorf("%s: %.3f of line rate, the model says %.3f", got.Algo, got.LineRateShare, want.LineRateShare)
	}
	t.Logf("%s: %.3f of line rate, model %.3f", got.Algo, got.LineRateShare, want.LineRateShare)
}

// Multicast runs at line rate wherever the uplinks of a leaf together have at least the rate of a host, however ranks
// are placed. At 8:1, each of two spines gives a leaf half of that rate, so it takes both. A ring needs ranks in
// order.
func TestLineRateOnOversubscribedNetworks(t *testing.T) {
	share := func(t *testing.T, algo string, ratio float64, placement string, subgroups int) float64 {
		t.Helper()
		r := simulate(t, Config{
			Op: "allgather", Algo: algo, Topology: network(t, "fat-tree:64,8,2", ratio, placement), Bytes: 256 << 10, Seed: 1,
			Schedule: Schedule{Chunk: 4096, Subgroups: subgroups, Chains: 64}, Network: Network{Rate: 100e9, Latency: 500},
		})
		if !r.Verified || r.RepairedChunks > 0 {
			t.Errorf("%s at %v:1, %s: verified %v, %d repaired", algo, ratio, placement, r.Verified, r.RepairedChunks)
		}
		return r.LineRateShare
	}
	for _, ratio := range []float64{1, 4, 8} {
		for _, placement := range []string{"order", "random:1"} {
			if got := share(t, "mcast", ratio, placement, 2); got < 0.95 {
				t.Errorf("multicast at %v:1, %s: %.3f of line rate, want 0.95", ratio, placement, got)
			}
		}
	}
	if got := share(t, "mcast", 8, "order", 1); got > 0.6 {
		t.Errorf("multicast over one of two spines at 8:1: %.3f of line rate, which the links cannot carry", got)
	}
	if got := share(t, "ring", 4, "random:1", 1); got > 0.25 {
		t.Errorf("a ring at random, 4:1: %.3f of line rate, which the links cannot carry", got)
	}
}

// More subgroups cost no time on a network that one tree does not saturate.
func TestSubgroupsCostNoTime(t *testing.T) {
	g := network(t, "fat-tree:48,6,6", 1, "order")
	run := func(subgroups int) float64 {
		return simulate(t, Config{
			Op: "allgather", Algo: "mcast", Topology: g, Bytes: 64 << 10, Seed: 1,
			Schedule: Schedule{Chunk: 4096, Subgroups: subgroups}, Network: Network{Rate: 100e9, Latency: 500},
		}).TimeUS
	}
	if one, all := run(1), run(6); all > 1.01*one {
		t.Errorf("%v us with one subgroup, %v us with one per spine", one, all)
	}
}

// No run is faster than its bound.
func TestBoundsOfSlowUplinks(t *testing.T) {
	for _, c := range []struct {
		spec      string
		ratio     float64
		placement string
	}{
		{"fat-tree:16,4,1", 8, "order"},
		{"fat-tree:16,4,2", 16, "random:3"},
		{"fat-tree3:16,4", 2, "random:2"},
		{"fat-tree3:16,4", 4, "stride:4"},
	} {
		t.Run(fmt.Sprintf("%s %s %v", c.spec, c.placement, c.ratio), func(t *testing.T) {
			t.Parallel()
			g := network(t, c.spec, c.ratio, c.placement)
			for op, algos := range map[string][]string{
				"allgather": {"mcast", "ring", "bruck"}, "broadcast": {"mcast", "chain"}, "reduce-scatter": {"inc", "ring"},
				"allreduce": {"inc", "ring"}, "alltoall": {"pairwise"}, "gather": {"linear"}, "reduce": {"binomial"},
				"sendrecv": {"direct"},
			} {
				for _, algo := range algos {
					r := simulate(t, Config{
						Op: op, Algo: algo, Topology: g, Bytes: 32 << 10, Seed: 1,
						Schedule: Schedule{Chunk: 4096, Subgroups: model.Trees(g)}, Network: Network{Rate: 10e9, Latency: 500},
					})
					if !r.Verified || r.TimeUS < r.BoundUS {
						t.Errorf("%s by %s: verified %v, %v us, bound %v us", op, algo, r.Verified, r.TimeUS, r.BoundUS)
					}
				}
			}
		})
	}
}

// Three quarters of the blocks come from other racks, over links of half the rate of a host.
func TestBoundOfARack(t *testing.T) {
	g := network(t, "fat-tree:16,4,1", 8, "random:1")
	r := simulate(t, Config{
		Op: "allgather", Algo: "mcast", Topology: g, Bytes: 64 << 10, Schedule: Schedule{Chunk: 4096, Subgroups: 1},
		Network: Network{Rate: 1e9, Latency: 500}, Seed: 1,
	})
	wire := 12 * 16 * (4096 + udHeader) * 8e6 / 0.5e9
	if want := wire + 2; math.Abs(r.BoundUS-want) > 0.01 {
		t.Errorf("bound %v us, want %v", r.BoundUS, want)
	}
	if share := 15 * 65536 * 8e6 / 1e9 / r.TimeUS; math.Abs(r.LineRateShare-share) > 1e-9 {
		t.Errorf("share of line rate %v, want %v", r.LineRateShare, share)
	}
}

// Chains follow the racks of a placement, so that activations stay inside them.
func TestChainsByRackWithPlacements(t *testing.T) {
	g := network(t, "fat-tree:16,4,2", 4, "random:1")
	r := simulate(t, Config{
		Op: "allgather", Algo: "mcast", Topology: g, Bytes: 64 << 10, Seed: 1,
		Schedule: Schedule{Chunk: 4096, Subgroups: 2, ChainBy: "rack"}, Network: Network{Rate: 10e9, Latency: 500},
	})
	if !r.Verified || r.Chains != 4 || r.MaxCrossings != 1 {
		t.Errorf("verified %v, %d chains, %d crossings; want one chain per rack", r.Verified, r.Chains, r.MaxCrossings)
	}
}
