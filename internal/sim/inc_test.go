package sim

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/testenv"
	"github.com/allcast/allcast/internal/wire"
)

// reductions runs in-network reductions of this size. The i-th runs on communicator comms[i] and starts
// on rank r at time at(i, r).
func reductions(
	t *testing.T, topo string, kind wire.CallKind, bytes int64, comms []uint32, at func(call, rank int) int64,
) string {
	t.Helper()
	cfg, _, err := base(t, "allgather", topo, 0).complete()
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorld(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p := cfg.Topology.Hosts
	for _, id := range slices.Compact(slices.Sorted(slices.Values(comms))) {
		for _, h := range w.hosts {
			if err := h.node.AddComm(id, allHosts(p)); err != nil {
				t.Fatal(err)
			}
		}
	}
	shape := equal(p, bytes/int64(p), cfg.Chunk)
	if shape.Kind = kind; kind == wire.Allreduce {
		clear(shape.Counts)
		shape.Counts[0] = bytes
	}
	var calls []*collective
	for i, id := range comms {
		c, err := w.collective(uint64(i+1), part{algo: "inc", shape: shape}, allHosts(p))
		if err != nil {
			t.Fatal(err)
		}
		c.comm = id
		calls = append(calls, c)
		w.call(c, func(rank int) int64 { return at(i, rank) })
	}
	w.loop(w.limit())
	return judge(w, calls)
}

// Some ranks make their calls on two communicators in different orders, or much earlier than others. No
// reduction waits for one of another communicator.
func TestReductionsAtOnce(t *testing.T) {
	t.Parallel()
	const (
		late  = 1e9     // long enough to send everything that can be sent ahead
		ahead = 2 << 20 // more than can be sent ahead
	)
	for _, kind := range []wire.CallKind{wire.ReduceScatter, wire.Allreduce} {
		for _, topo := range []string{"star:2", "star:5", "fat-tree:6,3,2"} {
			if testenv.Race && topo != "star:2" {
				continue // the run without the race detector covers all topologies
			}
			for name, at := range map[string]func(call, rank int) int64{
				"crossed":   func(call, rank int) int64 { return int64((call+rank)%2) * late },
				"staggered": func(call, rank int) int64 { return int64(call*rank) * late },
				"one late":  func(call, rank int) int64 { return int64(call) + int64(rank/3)*late },
			} {
				for _, comms := range [][]uint32{{0, 1}, {0, 0, 0}, {0, 1, 0, 1}} {
					if name == "crossed" && len(comms) > 2 {
						continue // calls on one communicator have an order
					}
					if msg := reductions(t, topo, kind, ahead, comms, at); msg != "" {
						t.Errorf("%v on %s, %s, communicators %v: %s", kind, topo, name, comms, msg)
					}
				}
			}
		}
	}
}

// A rank makes its call much later than all others.
func TestReductionForALateRank(t *testing.T) {
	t.Parallel()
	for _, topo := range []string{"star:2", "star:4", "fat-tree:4,4,2", "fat-tree:6,3,2", "fat-tree3:16,4"} {
		for rank := range 4 {
			late := func(_, r int) int64 {
				if r == rank {
					return 1e9
				}
				return 0
			}
			for _, bytes := range []int64{4, 20_000, 160_000, 1 << 20} {
				if msg := reductions(t, topo, wire.ReduceScatter, bytes, []uint32{0}, late); msg != "" {
					t.Errorf("%d bytes on %s, rank %d late: %s", bytes, topo, rank, msg)
				}
			}
		}
	}
}

// Aggregators add the contributions of all hosts, so a communicator of some hosts is refused.
func TestReductionOfSome(t *testing.T) {
	cfg, _, err := base(t, "allgather", "star:4", 0).complete()
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorld(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, members := range [][]int{{0, 1, 2}, {1}} {
		shape := equal(len(members), 10, 4)
		shape.Kind = wire.ReduceScatter
		if _, err := w.collective(1, part{algo: "inc", shape: shape}, members); !errors.Is(err, ErrConfig) {
			t.Errorf("members %v: error %v", members, err)
		}
	}
}

// Reductions of every size work on trees of every shape.
func TestReductionTrees(t *testing.T) {
	slow(t)
	topos := []string{
		"fat-tree:7,7,3", "fat-tree:7,2,1", "fat-tree:10,4,3", "fat-tree3:9,4", "fat-tree3:16,4", "fat-tree:1,1,1",
	}
	for _, topo := range topos {
		for _, op := range []string{"reduce-scatter", "allreduce"} {
			for _, bytes := range []int64{0, 1, 4096, 50_001, 400_000} {
				cfg := base(t, op, topo, bytes)
				cfg.Algo = "inc"
				r, err := Run(cfg)
				if err != nil {
					t.Fatal(err)
				}
				if !r.Verified {
					t.Errorf("%s of %d bytes on %s: %s", op, bytes, topo, fmt.Sprint(r.Wrong, r.Violation, r.Errors))
				}
			}
		}
	}
}

// With in-network reduction, a rank receives results only. Plans also receive operands.
func TestChunksToReceive(t *testing.T) {
	for _, x := range []struct {
		op, algo string
		want     int64
	}{
		{"allgather", "mcast", 60},
		{"allgather", "ring", 60},
		{"reduce-scatter", "ring", 60},
		{"reduce-scatter", "inc", 20},
		{"allreduce", "ring", 30},
		{"allreduce", "inc", 20},
		{"broadcast", "chain", 15},
		{bothAtOnce, "mcast+inc", 80},
		{"barrier", "dissemination", 0},
	} {
		cfg := base(t, x.op, "star:4", 5*4096)
		cfg.Algo = x.algo
		r, err := Run(cfg)
		if err != nil || !r.Verified {
			t.Fatal(err, r)
		}
		if r.ChunksTotal != x.want {
			t.Errorf("%s %s: %d chunks to receive, want %d", x.op, x.algo, r.ChunksTotal, x.want)
		}
	}
}
