package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/topology"
	"github.com/allcast/allcast/internal/wire"
)

// TestRandomEager makes many small calls with changing roots on several communicators, mixed with calls that
// are not eager. Ranks make them at different times, so that windows close and datagrams arrive before their
// calls. The network loses up to 30 % of the datagrams, duplicates and reorders them, and ranks crash.
func TestRandomEager(t *testing.T) {
	t.Parallel()
	if *seed != 0 {
		if msg := eagerWorld(*seed); msg != "" {
			t.Fatal(msg)
		}
		return
	}
	const shards = 4
	all := fewer(uint64(*seeds) / 2) // a run has up to 150 calls
	for shard := range shards {
		t.Run(fmt.Sprint(shard), func(t *testing.T) {
			t.Parallel()
			for s := uint64(shard + 1); s <= all; s += shards {
				if msg := eagerWorld(s); msg != "" {
					t.Fatalf("seed %d: %s\nreplay: go test ./internal/sim -run TestRandomEager -seed %d", s, msg, s)
				}
			}
		})
	}
}

func eagerWorld(s uint64) string {
	r := rand.New(rand.NewPCG(s, 0xea6e4))
	cfg := randomConfig(s)
	cfg.Op, cfg.Algo, cfg.Counts, cfg.Root = "allgather", "mcast", nil, 0
	cfg.Tokens, cfg.Digest, cfg.PSNBits = true, false, []int{0, 20, 26}[r.IntN(3)]
	if r.IntN(3) > 0 {
		cfg.Crashes = nil
	}
	cfg, _, err := cfg.complete()
	if err != nil {
		return err.Error()
	}
	w, err := newWorld(cfg)
	if err != nil {
		return err.Error()
	}
	// The spread of a rank's calls is up to many times the length of a call, so that windows close.
	spread := []int64{1e6, 20e6, 1e9}[r.IntN(3)]
	var calls []*collective
	for id := range uint32(1 + r.IntN(3)) {
		members := r.Perm(cfg.Topology.Hosts)[:1+r.IntN(cfg.Topology.Hosts)]
		if err := w.addComm(id, members); err != nil {
			return err.Error()
		}
		for range 1 + r.IntN(50) {
			c, err := eagerCall(w, r, uint64(len(calls)+1), id, members)
			if err != nil {
				return err.Error()
			}
			calls = append(calls, c)
			late, from := r.Int64N(spread), int64(c.req)*[]int64{0, 1e6, 10e6}[r.IntN(3)]
			w.call(c, func(rank int) int64 { return from + int64(rank)*late%spread })
		}
	}
	sortStarts(w)
	w.schedule()
	w.loop(w.limit())
	return judge(w, calls)
}

// eagerCall prepares a call that is usually eager.
func eagerCall(w *world, r *rand.Rand, req uint64, comm uint32, members []int) (*collective, error) {
	if r.IntN(8) == 0 {
		c, err := w.collective(req, randomPart(r, len(members), false, &w.cfg), members)
		if err == nil {
			c.comm = comm
		}
		return c, err
	}
	shape := randomShape(r, len(members), &w.cfg)
	for i := range shape.Counts { // most calls are small enough
		shape.Counts[i] = min(shape.Counts[i], int64(mcast.EagerBytes/len(members)))
	}
	shape.Eager = w.eagerChunks
	plan, err := mcast.Plan(shape, w.layout)
	if err != nil {
		return nil, err
	}
	return multicastCall(req, comm, members, plan, shape, r.IntN(2) == 0, w.cfg.Seed), nil
}

// TestEagerBroadcast bounds the time and the messages of eager Broadcasts on a network without loss: no rank
// sends more than two messages per half window, and a call takes as long as its data needs.
func TestEagerBroadcast(t *testing.T) {
	const calls = 10 * mcast.WindowCalls
	w, all := eagerSequence(t, "star:8", calls, 4096, 0, nil)
	for _, c := range all {
		for rank, o := range c.ranks {
			if o.spent.Fetch > 0 || o.spent.Handshake > 0 {
				t.Fatalf("call %d on rank %d spent %+v", c.req, rank, o.spent)
			}
		}
	}
	if got := w.repaired(); got != 0 {
		t.Errorf("%d chunks were repaired, and none was lost", got)
	}
	limit := int64(2*8*(calls/(mcast.WindowCalls/2))+4*8) * (64 + rcHeader)
	var sent int64
	for _, h := range w.hosts {
		sent += h.sent
	}
	data := int64(calls) * (4096 + udHeader)
	if extra := sent - data; extra < 0 || extra > limit {
		t.Errorf("%d bytes besides the data, want at most %d", extra, limit)
	}
}

// TestEagerRepair bounds the time of a repair: about one cutoff and one read, never a timeout.
func TestEagerRepair(t *testing.T) {
	const calls = 50
	_, clean := eagerSequence(t, "star:8", calls, 4096, 0, nil)
	w, lossy := eagerSequence(t, "star:8", calls, 4096, 0.3, nil)
	if w.repaired() == 0 {
		t.Fatal("nothing was repaired at 30 % loss")
	}
	for i, c := range lossy {
		for rank, o := range c.ranks {
			took, want := o.at-int64(i)*1e9, clean[i].ranks[rank].at-int64(i)*1e9
			if limit := 2*want + 6*w.alpha; took > limit {
				t.Fatalf("call %d on rank %d took %v, want at most %v",
					i, rank, time.Duration(took/1000), time.Duration(limit/1000))
			}
		}
	}
}

// TestEagerRepairIsQuick bounds what lost chunks of eager Broadcasts cost if ranks know nothing about the network, as
// on a loopback device: they assume a link of 1 Gbit/s and an alpha of 1 ms.
func TestEagerRepairIsQuick(t *testing.T) {
	const calls, bytes = 300, mcast.EagerBytes
	ignorant := func(cfg *Config) {
		cfg.Rate, cfg.Latency, cfg.Reaction, cfg.Chunk = 25e9, time.Microsecond, 5*time.Microsecond, 8192
		cfg.limits = mcast.Limits{Alpha: step.Millisecond, MinAlpha: 50 * step.Microsecond, MaxAlpha: step.Second}
	}
	times := func(loss float64) []int64 {
		w, all := eagerSequence(t, "star:4", calls, bytes, loss, ignorant)
		var took []int64
		for i, c := range all {
			last := int64(0)
			for _, o := range c.ranks {
				last = max(last, o.at-int64(i)*1e9)
			}
			took = append(took, last)
		}
		if loss > 0 && w.repaired() < calls {
			t.Fatalf("only %d chunks were repaired", w.repaired())
		}
		slices.Sort(took)
		return took
	}
	clean, lossy := times(0)[calls/2], times(0.05)
	median, p99 := lossy[calls/2], lossy[calls*99/100]
	if median > 4*clean || p99 > 20*clean {
		t.Errorf("a median of %v and a p99 of %v, want at most 4 and 20 times %v",
			time.Duration(median/1000), time.Duration(p99/1000), time.Duration(clean/1000))
	}
}

// eagerSequence runs Broadcasts from changing roots, one per millisecond.
func eagerSequence(
	t *testing.T, topo string, n int, bytes int64, loss float64, change func(*Config),
) (*world, []*collective) {
	t.Helper()
	g, err := topology.Parse(topo)
	if err != nil {
		t.Fatal(err)
	}
	cfg := randomConfig(1)
	cfg.Faults, cfg.Receiver = Faults{Loss: loss}, Receiver{}
	cfg.Topology, cfg.Op, cfg.Counts = g, "allgather", nil
	cfg.Tokens, cfg.Flow, cfg.PSNBits, cfg.Chunk, cfg.Queue = true, "credit", 0, 4096, 0
	cfg.Timeout = time.Second
	if change != nil {
		change(&cfg)
	}
	if cfg, _, err = cfg.complete(); err != nil {
		t.Fatal(err)
	}
	w, err := newWorld(cfg)
	if err != nil {
		t.Fatal(err)
	}
	members := allHosts(cfg.Topology.Hosts)
	if err := w.addComm(0, members); err != nil {
		t.Fatal(err)
	}
	var calls []*collective
	for i := range n {
		s := mcast.Shape{
			Kind: wire.Broadcast, Root: i % len(members), Counts: make([]int64, len(members)), Chunk: cfg.Chunk,
			Chains: 1, Subgroups: 1, Eager: w.eagerChunks,
		}
		s.Counts[s.Root] = bytes
		plan, err := mcast.Plan(s, w.layout)
		if err != nil {
			t.Fatal(err)
		}
		if !plan[0].Eager() {
			t.Fatalf("a Broadcast of %d bytes is not eager", bytes)
		}
		c := multicastCall(uint64(i+1), 0, members, plan, s, true, 1)
		calls = append(calls, c)
		w.call(c, func(int) int64 { return int64(i) * 1e9 })
	}
	w.loop(w.limit())
	if msg := judge(w, calls); msg != "" {
		t.Fatal(msg)
	}
	return w, calls
}
