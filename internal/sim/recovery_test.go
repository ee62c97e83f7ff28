package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/topology"
	"github.com/allcast/allcast/internal/wire"
)

// recoveryShare is the number of simulations of TestRecoveryIsBounded per seed of -seeds.
const recoveryShare = 5

// TestRecoveryIsBounded bounds the cost of losses: no operation takes longer than twice its time without
// losses, six cutoffs, and twice the time of the repaired bytes at line rate.
func TestRecoveryIsBounded(t *testing.T) {
	t.Parallel()
	if *seed != 0 {
		cfg := lossyConfig(*seed)
		t.Logf("allcast %s", commandLine(cfg))
		if msg := checkRecovery(cfg); msg != "" {
			t.Fatal(msg)
		}
		return
	}
	const shards = 4
	all := fewer(uint64(*seeds * recoveryShare))
	for shard := range shards {
		t.Run(fmt.Sprint(shard), func(t *testing.T) {
			t.Parallel()
			for s := uint64(shard + 1); s <= all; s += shards {
				cfg := lossyConfig(s)
				if msg := checkRecovery(cfg); msg != "" {
					t.Fatalf("seed %d: %s\nreplay: go test ./internal/sim -run TestRecoveryIsBounded -seed %d\n"+
						"about:  allcast %s", s, msg, s, commandLine(cfg))
				}
			}
		})
	}
}

// lossyConfig derives a Config with losses, and no other faults, from a seed.
func lossyConfig(s uint64) Config {
	r := rand.New(rand.NewPCG(s, 0x1055))
	one := func(in int) bool { return r.IntN(in) == 0 }
	cfg := Config{Op: "allgather", Algo: "mcast", Seed: s}
	p := 2 + r.IntN(15)
	if one(6) {
		p = 2 + r.IntN(39)
	}
	spec := fmt.Sprintf("star:%d", p)
	if one(3) {
		spec = fmt.Sprintf("fat-tree:%d,%d,%d", p, 1+r.IntN(p), 1+r.IntN(4))
	}
	g, err := topology.Parse(spec)
	if err != nil {
		panic(err)
	}
	cfg.Topology = g
	if one(2) {
		cfg.Op, cfg.Root = "broadcast", r.IntN(p)
	}
	cfg.Chunk = []int{64, 256, 1000, 4096}[r.IntN(4)]
	cfg.Bytes = int64(r.IntN(60*cfg.Chunk) + 1)
	if one(10) && cfg.Op == "broadcast" {
		cfg.Bytes *= 20
	}
	cfg.Chains, cfg.Subgroups = 1+r.IntN(p), 1+r.IntN(8)
	if one(2) {
		cfg.Chains = 1
	}
	cfg.Rate = []float64{1e9, 56e9, 100e9, 400e9}[r.IntN(4)]
	cfg.Latency = time.Duration(r.IntN(2000)) * time.Nanosecond
	cfg.Flow = []string{"none", "credit"}[r.IntN(2)]
	if cfg.Flow == "credit" && one(2) {
		cfg.RecvQueue = int64(cfg.Chunk+udHeader) * int64(1+r.IntN(64))
	}
	cfg.Loss = r.Float64() * 0.3
	return cfg
}

// checkRecovery runs cfg with and without losses, and describes what is wrong with the times.
func checkRecovery(cfg Config) string {
	lossy, err := Run(cfg)
	if err != nil {
		return err.Error()
	}
	cfg.Loss = 0
	clean, err := Run(cfg)
	if err != nil {
		return err.Error()
	}
	for _, r := range []*Result{lossy, clean} {
		if !r.Verified || r.Algo != "mcast" {
			return fmt.Sprintf("%s, not verified: %s %+v", r.Algo, r.Violation, r.Errors)
		}
	}
	if clean.RepairedChunks > 0 {
		return fmt.Sprintf("%d chunks were repaired without a loss", clean.RepairedChunks)
	}
	repaired := float64(lossy.RepairedChunks) * float64(cfg.Chunk) * 8e6 / cfg.Rate
	bound := 2*clean.TimeUS + 6*lossy.CutoffUS + 2*repaired
	if tinyWindow(&cfg, lossy) {
		bound *= 1.2
	}
	if lossy.TimeUS > bound {
		return fmt.Sprintf("took %.3f us, %.1f times the bound of %.3f: "+
			"clean %.3f, cutoff %.3f, %d repaired chunks %.3f",
			lossy.TimeUS, lossy.TimeUS/bound, bound, clean.TimeUS, lossy.CutoffUS, lossy.RepairedChunks, repaired)
	}
	return ""
}

// TestRecoveryOneAfterAnother bounds the cost of losses for consecutive operations: none may keep room
// for datagrams that the next one needs.
func TestRecoveryOneAfterAnother(t *testing.T) {
	t.Parallel()
	const calls, share = 4, 10 // share is the divisor of -seeds
	for s := uint64(1); s <= fewer(uint64(*seeds/share)); s++ {
		cfg := lossyConfig(s)
		room := 2*cfg.Chains*cfg.Subgroups + 1<<(4+s%9)
		cfg.Flow, cfg.RecvQueue = "credit", int64(cfg.Chunk+udHeader)*int64(room)
		one, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		_, parts := mustWorld(t, cfg)
		startAt := func(call, _ int) int64 { return int64(call) * int64(one.TimeUS*1e6) }
		w, all := many(t, cfg, calls, parts[0].shape, startAt)
		if msg := judge(w, all); msg != "" {
			t.Fatalf("seed %d: %s", s, msg)
		}
		lossy := w.result(all)
		cfg.Loss = 0
		clean, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		repaired := float64(lossy.RepairedChunks) * float64(cfg.Chunk) * 8e6 / cfg.Rate
		bound := (calls-1)*one.TimeUS + 2*clean.TimeUS + 6*one.CutoffUS + 2*repaired
		if lossy.TimeUS > bound {
			t.Fatalf("seed %d, room for %d: %d calls took %.3f us, want at most %.3f; "+
				"one takes %.3f, and %.3f without losses\nabout: allcast %s",
				s, room, calls, lossy.TimeUS, bound, one.TimeUS, clean.TimeUS, commandLine(lossyConfig(s)))
		}
	}
}

// TestRecoveryBesideOthers loses chunks of a small operation while a large one keeps all receive queues
// full. A full queue may not delay the repair for longer than it takes to drain.
func TestRecoveryBesideOthers(t *testing.T) {
	t.Parallel()
	const small, room = 8, 64
	for s := range fewer(100) + 1 {
		cfg := base(t, "broadcast", "star:4", 64)
		cfg.Chunk, cfg.Seed, cfg.Loss = 64, s+1, 0.05
		cfg.Flow, cfg.RecvQueue, cfg.RecvCost = "credit", room*(64+udHeader), time.Microsecond
		w, _ := mustWorld(t, cfg)
		members := allHosts(4)
		var calls []*collective
		for i, chunks := range []int64{5000, small} {
			for _, h := range w.hosts {
				if err := h.node.AddComm(uint32(i), members); err != nil {
					t.Fatal(err)
				}
			}
			shape := mcast.Shape{
				Kind: wire.Broadcast, Counts: []int64{64 * chunks, 0, 0, 0}, Chunk: 64, Chains: 1, Subgroups: 1,
			}
			plan, err := mcast.Plan(shape, w.layout)
			if err != nil {
				t.Fatal(err)
			}
			c := multicastCall(uint64(i+1), uint32(i), members, plan, shape, false, s)
			calls = append(calls, c)
			w.call(c, func(int) int64 { return int64(i) * 100e6 })
		}
		w.schedule()
		w.loop(w.limit())
		if msg := judge(w, calls); msg != "" {
			t.Fatal(msg)
		}
		took := func(c *collective) (us int64) {
			for _, o := range c.ranks {
				us = max(us, o.at/1e6)
			}
			return us
		}
		if large, us := took(calls[0]), took(calls[1])-100; us > 8*room || large < 4000 {
			t.Fatalf("seed %d: %d chunks took %d us beside an operation that took %d us", s+1, small, us, large)
		}
	}
}

// tinyWindow reports whether the receive queue has less than one place per chain and subgroup. A lost
// chunk then occupies its place until its sender has announced it, so losses cost more.
func tinyWindow(cfg *Config, r *Result) bool {
	return cfg.RecvQueue > 0 && cfg.RecvQueue/int64(cfg.Chunk+udHeader) < int64(r.Chains*r.Subgroups)
}

// A loss costs an operation on a star at most three times its time without losses, plus 100 us.
func TestLossOnAStar(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"broadcast", "allgather"} {
		for _, p := range []int{2, 4, 8, 16} {
			t.Run(fmt.Sprintf("%s/%d", op, p), func(t *testing.T) {
				t.Parallel()
				for bytes := int64(4 << 10); bytes <= 256<<10; bytes *= 4 {
					cfg := base(t, op, fmt.Sprintf("star:%d", p), bytes)
					clean := mustVerify(t, cfg)
					for _, loss := range []float64{0.01, 0.05, 0.2} {
						for s := range fewer(50) + 1 {
							cfg.Loss, cfg.Seed = loss, s+1
							if r := mustVerify(t, cfg); r.TimeUS > 3*clean.TimeUS+100 {
								t.Fatalf("%d bytes, loss %v, seed %d: %.3f us, and %.3f without loss",
									bytes, loss, s+1, r.TimeUS, clean.TimeUS)
							}
						}
					}
				}
			})
		}
	}
}

// The estimated arrival of a datagram that a switch drops counts too: recovery starts after it.
func TestDropsInAQueueAreNoted(t *testing.T) {
	cfg := base(t, "broadcast", "star:2", 64<<10)
	cfg.Queue = 10_000
	cfg, _, err := cfg.complete()
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorld(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l := &w.links[slices.IndexFunc(w.links, func(l link) bool { return l.toHost })]
	l.until = 1e6
	chunk := func() *packet { return &packet{refs: 1, kind: pktChunk, trafficClass: classBulk, size: 4000} }
	for range 3 { // the last packet does not fit
		w.enqueue(l, chunk(), nil)
	}
	want := l.until + int64(12_000*l.psByte) + l.latency
	if w.dropped != 1 || w.lastArrival != want {
		t.Errorf("%d dropped, recovery starts at %d ps, want %d", w.dropped, w.lastArrival, want)
	}
	// An earlier arrival changes nothing.
	w.now = 2e6
	w.hosts[1].datagram(chunk())
	if w.lastArrival != want {
		t.Errorf("recovery starts at %d ps, want %d", w.lastArrival, want)
	}
}

// recovery_us is the time from the last (possibly prevented) arrival of a datagram to the end.
func TestRecoveryIsMeasured(t *testing.T) {
	t.Parallel()
	cfg := base(t, "broadcast", "star:4", 64<<10)
	clean := mustVerify(t, cfg)
	cfg.Loss, cfg.Seed = 0.05, 1
	lossy := mustVerify(t, cfg)
	if lossy.RepairedChunks == 0 {
		t.Fatal("nothing was lost")
	}
	// Without loss the handshake remains. With loss, a cutoff, a fetch and a read remain as well.
	if clean.RecoveryUS <= 0 || clean.RecoveryUS > clean.Phases.Handshake+0.001 {
		t.Errorf("recovery without loss takes %v us, but the handshake takes only %v",
			clean.RecoveryUS, clean.Phases.Handshake)
	}
	if extra := lossy.TimeUS - clean.TimeUS; math.Abs(lossy.RecoveryUS-clean.RecoveryUS-extra) > 0.001 {
		t.Errorf("recovery takes %v us, %v without loss; the operation takes %v us longer",
			lossy.RecoveryUS, clean.RecoveryUS, extra)
	}
}
