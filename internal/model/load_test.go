package model_test

import (
	"math"
	"testing"

	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/topology"
)

func oversubscribed(t *testing.T, spec string, ratio float64) *topology.Graph {
	t.Helper()
	g, err := topology.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	if g, err = g.Oversubscribe(ratio); err != nil {
		t.Fatal(err)
	}
	return g
}

// Times that follow from counting by hand: blocks of 1000 bytes, hosts at 8 Gbit/s, so one byte per nanosecond.
func TestTimes(t *testing.T) {
	const bytes, rate = 1000, 8e9
	for _, c := range []struct {
		spec      string
		ratio     float64
		kind      p2p.Kind
		algo      string
		subgroups int
		want      float64 // microseconds
	}{
		{"star:4", 1, p2p.Allgather, "ring", 1, 3},
		{"star:4", 1, p2p.Allgather, "mcast", 1, 4},
		{"star:4", 1, p2p.Allgather, "recursive-doubling", 1, 3},
		{"star:4", 1, p2p.Broadcast, "binomial", 1, 2}, // two rounds
		{"star:4", 1, p2p.Broadcast, "mcast", 1, 1},
		{"star:3", 1, p2p.Allgather, "bruck", 1, 2},
		{"fat-tree:8,2,1", 4, p2p.Allgather, "ring", 1, 7},                // one flow per uplink at host rate
		{"fat-tree:8,2,1", 8, p2p.Allgather, "ring", 1, 14},               // at half of it
		{"fat-tree:8,2,1", 4, p2p.Allgather, "recursive-doubling", 1, 19}, // 1 + 2 in the racks, 4 flows of 4 blocks across
		{"fat-tree:8,2,2", 4, p2p.Allgather, "mcast", 2, 8},               // half of each block at half the rate
		{"fat-tree:8,2,2", 4, p2p.Allgather, "mcast", 1, 16},              // a whole one
		{"fat-tree:8,2,2", 4, p2p.Broadcast, "mcast", 2, 1},
	} {
		got, err := model.AlgorithmTraffic(oversubscribed(t, c.spec, c.ratio), c.kind, c.algo, model.Workload{
			Bytes: bytes, Rate: rate, Subgroups: c.subgroups, Chunk: 100,
		})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got.TimeUS-c.want) > 1e-9 {
			t.Errorf("%v by %s on %s, %v:1: %v us, want %v", c.kind, c.algo, c.spec, c.ratio, got.TimeUS, c.want)
		}
		received := 1.0
		if c.kind == p2p.Allgather {
			received = float64(got.Nodes - 1)
		}
		if share := received / c.want; math.Abs(got.LineRateShare-share) > 1e-9 {
			t.Errorf("%v by %s on %s: %v of line rate, want %v", c.kind, c.algo, c.spec, got.LineRateShare, share)
		}
	}
}

// A pipeline of segments takes the time of the buffer, and of a segment per rank that forwards it.
func TestTimeOfAPipeline(t *testing.T) {
	const segment = 64 << 10
	got, err := model.AlgorithmTraffic(oversubscribed(t, "star:5", 1), p2p.Broadcast, "chain",
		model.Workload{Bytes: 16 * segment, Rate: 8e9})
	if err != nil {
		t.Fatal(err)
	}
	if want := (16 + 3) * segment / 1e3; math.Abs(got.TimeUS-want) > 1e-9 {
		t.Errorf("%v us, want %v", got.TimeUS, want)
	}
}

func TestTiersOfTraffic(t *testing.T) {
	load := model.Workload{Bytes: 1000, Subgroups: 2}
	got, err := model.AlgorithmTraffic(oversubscribed(t, "fat-tree:8,2,2", 1), p2p.Allgather, "mcast", load)
	if err != nil {
		t.Fatal(err)
	}
	for tier, want := range map[string]uint64{"host_up": 8000, "host_down": 56000, "leaf_up": 8000, "leaf_down": 8000} {
		if got.TierBytes[tier] != want {
			t.Errorf("%d bytes on %s, want %d", got.TierBytes[tier], tier, want)
		}
	}
	if got.TimeUS != 0 || got.LineRateShare != 0 || got.BlockLinks != 80 {
		t.Errorf("%+v; want no time without a rate, and 80 traversals", got)
	}
}

func TestLoadErrors(t *testing.T) {
	g := oversubscribed(t, "star:4", 1)
	for _, c := range []struct {
		kind p2p.Kind
		algo string
		load model.Workload
	}{
		{p2p.Allgather, "mcast", model.Workload{}},
		{p2p.Allgather, "binomial", model.Workload{Bytes: 1}},
		{p2p.Allreduce, "ring", model.Workload{Bytes: 1}},
		{p2p.Allgather, "mcast", model.Workload{Bytes: 1, Subgroups: model.MaxSubgroups + 1}},
	} {
		if _, err := model.AlgorithmTraffic(g, c.kind, c.algo, c.load); err == nil {
			t.Errorf("%v by %s with %+v is no error", c.kind, c.algo, c.load)
		}
	}
	large := oversubscribed(t, "star:1025", 1)
	if _, err := model.AlgorithmTraffic(large, p2p.Allgather, "ring", model.Workload{Bytes: 1, Rate: 1e9}); err == nil {
		t.Errorf("times on %d hosts are accepted", large.Hosts)
	}
}
