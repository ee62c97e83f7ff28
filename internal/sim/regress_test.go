package sim

import (
	"testing"
	"time"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/units"
	"github.com/allcast/allcast/internal/wire"
)

// mustWorld returns the world of a Config and the parts to run in it.
func mustWorld(t *testing.T, cfg Config) (*world, []part) {
	t.Helper()
	cfg, parts, err := cfg.complete()
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorld(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w, parts
}

// many runs calls of one shape on a communicator of all hosts. Call k starts on rank r at time at(k, r).
func many(
	t *testing.T, cfg Config, calls int, shape mcast.Shape, at func(call, rank int) int64,
) (*world, []*collective) {
	t.Helper()
	w, _ := mustWorld(t, cfg)
	plan, err := mcast.Plan(shape, w.layout)
	if err != nil {
		t.Fatal(err)
	}
	members := allHosts(w.g.Hosts)
	var all []*collective
	for _, h := range w.hosts {
		if err := h.node.AddComm(0, members); err != nil {
			t.Fatal(err)
		}
	}
	for k := range calls {
		c := multicastCall(uint64(k+1), 0, members, plan, shape, false, cfg.Seed)
		all = append(all, c)
		w.call(c, func(rank int) int64 { return at(k, rank) })
	}
	sortStarts(w)
	w.schedule()
	w.loop(w.limit())
	return w, all
}

func equal(p int, bytes int64, chunk int) mcast.Shape {
	s := mcast.Shape{Kind: wire.Allgather, Counts: make([]int64, p), Chunk: chunk, Chains: 1, Subgroups: 1}
	for i := range s.Counts {
		s.Counts[i] = bytes
	}
	return s
}

// Two calls of 1200 rounds each share 1024 slots. If the second could take a slot before the first has
// used it, a rank that makes the second call late would cause a circular wait.
func TestSlotsAreUsedInOrder(t *testing.T) {
	for _, late := range []int64{0, 100e9} {
		cfg := base(t, "allgather", "star:4", 0)
		cfg.PSNBits, cfg.Chunk, cfg.Noise, cfg.Timeout = 4, 1, 20*time.Microsecond, time.Second
		w, calls := many(t, cfg, 2, equal(4, 4800, 1), func(call, rank int) int64 {
			if call == 1 && rank == 0 {
				return late
			}
			return 0
		})
		if msg := judge(w, calls); msg != "" {
			t.Errorf("second call %d ms late on one rank: %s", late/1e9, msg)
		}
	}
}

// Receivers are slow, and many operations are in flight. The announcement of a stalled sender overtakes
// datagrams in the receive queue, so the announced chunks must not count as consumed.
func TestCreditNeverOverruns(t *testing.T) {
	for _, calls := range []int{1, 4, 16, 30} {
		for _, room := range []int64{64, 256} {
			cfg := base(t, "allgather", "star:4", 0)
			cfg.Chunk, cfg.Flow, cfg.RecvCost = 1024, "credit", 2*time.Microsecond
			cfg.RecvQueue = room * (1024 + udHeader)
			w, all := many(t, cfg, calls, equal(4, 32<<10, 1024), func(int, int) int64 { return 0 })
			if msg := judge(w, all); msg != "" || w.dropped > 0 {
				t.Errorf("%d calls, room for %d: %d dropped %s", calls, room, w.dropped, msg)
			}
		}
	}
}

// A rank that was stopped until it was declared lost learns that it is excluded. It does not blame the
// neighbour that stopped talking to it.
func TestSlowRankBlamesItself(t *testing.T) {
	cfg := base(t, "allgather", "star:4", 1<<20)
	cfg.Timeout = 100 * time.Millisecond
	cfg.Stalls = []units.Stall{{Rank: 2, At: time.Microsecond, For: time.Second}}
	r := mustRun(t, cfg)
	if len(r.Errors) != 4 {
		t.Fatalf("%+v", r.Errors)
	}
	for _, e := range r.Errors {
		if e.Culprit != 2 {
			t.Errorf("rank %d blames %d", e.Rank, e.Culprit)
		}
	}
}

// The back-off of the cutoff does not add the duration of a stall again.
func TestCutoffAfterAStall(t *testing.T) {
	for seed := uint64(1); seed <= 50; seed++ {
		cfg := base(t, "allgather", "star:3", 4096)
		cfg.Seed, cfg.Loss = seed, 0.5
		cfg.Stalls = []units.Stall{{Rank: 1, At: 4 * time.Microsecond, For: time.Second}}
		if r := mustVerify(t, cfg); r.TimeUS > 1.001e6 {
			t.Fatalf("seed %d: %.0f us", seed, r.TimeUS)
		}
	}
}

// A packet that arrives exactly when a delayed packet of the same connection is delivered must not
// overtake it.
func TestReliablePathKeepsOrder(t *testing.T) {
	cfg := base(t, "allgather", "star:12", 294)
	cfg.Chunk, cfg.Chains, cfg.Queue, cfg.Seed = 7, 4, 1360, 191
	cfg.Loss, cfg.LossAll, cfg.Reorder = 0.5, 0.1, 0.5
	cfg.Rate, cfg.Latency = 10e9, time.Microsecond
	mustVerify(t, cfg)
}

// A search for a late rank must survive the start of the call's next round.
func TestDeadlineBetweenRounds(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		cfg := base(t, "allgather", "star:4", 4800)
		cfg.PSNBits, cfg.Chunk, cfg.Seed, cfg.Noise = 4, 1, seed, 20*time.Microsecond
		cfg.Timeout, cfg.Deadline = 10*time.Millisecond, 2*time.Millisecond
		for _, e := range mustRun(t, cfg).Errors {
			if e.Culprit != -1 {
				t.Fatalf("seed %d: no rank failed, but %+v", seed, e)
			}
		}
	}
}
