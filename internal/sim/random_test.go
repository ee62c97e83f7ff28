package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/topology"
	"github.com/allcast/allcast/internal/units"
)

var (
	seeds = flag.Int("seeds", 2000, "random simulations to run; without the flag a quarter, except in soak")
	seed  = flag.Uint64("seed", 0, "run only this simulation, with more output")
)

// TestRandom runs collectives of every shape over networks with every fault. Without a crash, each must
// complete with the right data. With a crash, each survivor completes or blames a crashed rank. No
// buffer is touched after it was given back.
func TestRandom(t *testing.T) {
	t.Parallel()
	if *seed != 0 {
		cfg := randomConfig(*seed)
		t.Logf("allcast %s", commandLine(cfg))
		if msg := check(t, cfg); msg != "" {
			t.Fatal(msg)
		}
		return
	}
	const shards = 4
	all := fewer(uint64(*seeds))
	for shard := range shards {
		t.Run(fmt.Sprint(shard), func(t *testing.T) {
			t.Parallel()
			for s := uint64(shard + 1); s <= all; s += shards {
				cfg := randomConfig(s)
				if msg := check(t, cfg); msg != "" {
					t.Fatalf("seed %d: %s\nreplay: go test ./internal/sim -run TestRandom -seed %d\nabout:  allcast %s",
						s, msg, s, commandLine(cfg))
				}
			}
		})
	}
}

// check runs cfg and describes what is wrong with its end, or returns "".
func check(t *testing.T, cfg Config) string {
	t.Helper()
	r, err := Run(cfg)
	if err != nil {
		return err.Error()
	}
	crashed := map[int]bool{}
	for _, c := range cfg.Crashes {
		crashed[c.Rank] = true
	}
	switch {
	case r.Algo != "mcast":
		return "ran " + r.Algo
	case r.Violation != "":
		return r.Violation
	case r.Wrong > 0:
		return fmt.Sprintf("wrong data on %d ranks", r.Wrong)
	case len(crashed) == 0 && !r.Verified:
		return fmt.Sprintf("not verified: %+v", r.Errors)
	case r.MaxOwnerReads > 1:
		return fmt.Sprintf("a chunk was read from its owner %d times", r.MaxOwnerReads)
	}
	if tidy(&cfg) && cfg.Flow == "credit" && r.DroppedChunks > 0 {
		return fmt.Sprintf("credit overran a receiver: %d chunks dropped", r.DroppedChunks)
	}
	if msg := needless(&cfg, r.DroppedChunks, r.RepairedChunks, r.ChunksTotal); msg != "" {
		return msg
	}
	for _, e := range r.Errors {
		if !crashed[e.Culprit] {
			return fmt.Sprintf("rank %d blames rank %d, which lives: %+v", e.Rank, e.Culprit, e)
		}
	}
	return ""
}

// tidy reports whether the network delivers all datagrams once, in order and on time.
func tidy(cfg *Config) bool {
	return cfg.Loss == 0 && cfg.LossAll == 0 && cfg.Reorder == 0 && cfg.Duplicate == 0 && cfg.Straggle == 0 &&
		cfg.Queue == 0
}

// needless returns a message if many chunks were repaired although all of them arrived. A rank may
// consider a few chunks lost while it waits for credit, or while operations share links.
func needless(cfg *Config, dropped, repaired, all int64) string {
	calm := tidy(cfg) && len(cfg.Stalls) == 0 && len(cfg.Crashes) == 0 && cfg.Detour == 0
	if calm && dropped == 0 && repaired > all/4 {
		return fmt.Sprintf("%d of %d chunks were repaired, and none was lost", repaired, all)
	}
	return ""
}

// randomConfig derives a Config from a seed. It is small enough for thousands of runs in seconds, and
// has each feature on often enough to meet every other.
func randomConfig(s uint64) Config {
	r := rand.New(rand.NewPCG(s, 0x5eed))
	one := func(in int) bool { return r.IntN(in) == 0 }
	cfg := Config{Op: "allgather", Algo: "mcast", Seed: s, Timeout: 50 * time.Millisecond}
	p := 1 + r.IntN(16)
	if one(6) {
		p = 1 + r.IntN(40)
	}
	spec := fmt.Sprintf("star:%d", p)
	switch r.IntN(4) {
	case 0:
		leaves := 1 + r.IntN(p)
		spec = fmt.Sprintf("fat-tree:%d,%d,%d", p, leaves, 1+r.IntN(4))
	case 1:
		spec = fmt.Sprintf("fat-tree3:%d,%d", p, []int{6, 8}[r.IntN(2)])
	}
	g, err := topology.Parse(spec)
	if err != nil {
		panic(err)
	}
	cfg.Topology = g
	if one(3) {
		cfg.Op, cfg.Root = "broadcast", r.IntN(p)
	}
	cfg.Chunk = []int{1, 3, 64, 256, 1000}[r.IntN(5)]
	cfg.Bytes = int64(r.IntN(40 * cfg.Chunk))
	switch r.IntN(8) {
	case 0:
		cfg.Bytes = 0
	case 1:
		cfg.Bytes = 1
	case 2:
		cfg.Bytes = int64(cfg.Chunk * r.IntN(20))
	}
	if cfg.Op == "allgather" && one(3) {
		cfg.Counts = make([]int64, p)
		for i := range cfg.Counts {
			if !one(3) {
				cfg.Counts[i] = int64(r.IntN(30 * cfg.Chunk))
			}
		}
	}
	cfg.Chains, cfg.Subgroups = 1+r.IntN(p), 1+r.IntN(8)
	if one(2) {
		cfg.Chains = 1
	}
	cfg.ChainBy = []string{"rank", "rank", "rack"}[r.IntN(3)]
	cfg.InPlace = one(2)
	if one(4) {
		cfg.PSNBits = 6 + r.IntN(5) // several rounds
	}
	cfg.Rate = []float64{1e9, 56e9, 100e9, 400e9}[r.IntN(4)]
	cfg.Latency = time.Duration(r.IntN(2000)) * time.Nanosecond
	cfg.Flow = []string{"none", "credit"}[r.IntN(2)]
	if one(3) {
		cfg.RecvQueue = int64(cfg.Chunk+udHeader) * int64(1+r.IntN(40))
	}
	if one(4) {
		cfg.Queue = int64(cfg.Chunk+udHeader) * int64(1+r.IntN(60))
	}
	if one(4) {
		cfg.RecvCost = time.Duration(r.IntN(2000)) * time.Nanosecond
	}
	for _, x := range []*float64{&cfg.Loss, &cfg.LossAll, &cfg.Reorder, &cfg.Duplicate} {
		switch r.IntN(6) {
		case 0:
			*x = r.Float64() / 100
		case 1:
			*x = r.Float64() / 2
		}
	}
	if one(20) {
		cfg.Loss = 1
	}
	if one(4) {
		cfg.Noise = time.Duration(r.IntN(5000)) * time.Nanosecond
	}
	if one(6) {
		cfg.Detour = time.Duration(1+r.IntN(20)) * time.Microsecond
	}
	at := func() time.Duration { return time.Duration(r.ExpFloat64() * 100e3) }
	for one(4) {
		cfg.Stalls = append(cfg.Stalls, units.Stall{Rank: r.IntN(p), At: at(), For: at() / 2})
	}
	if one(3) {
		for n := 1 + r.IntN(3); n > 0; n-- {
			cfg.Crashes = append(cfg.Crashes, Crash{Rank: r.IntN(p), At: at(), Reset: one(2)})
		}
	}
	// As in an engine, datagrams arrive in groups, and threads learn of each other's work late.
	if one(2) {
		cfg.Gather = time.Duration(r.IntN(3000)) * time.Nanosecond
	}
	if one(2) {
		cfg.Late = time.Duration(r.IntN(3000)) * time.Nanosecond
	}
	cfg.Digest = one(3)
	// Some datagrams arrive during their fetch, or just before or after it.
	if one(3) {
		cfg.Straggle = r.Float64() / 2
		if one(2) {
			cfg.Late = time.Duration(r.IntN(50)) * time.Microsecond
		}
	}
	return cfg
}

// commandLine returns the command line for cfg, as far as the command has the options.
func commandLine(c Config) string {
	var b strings.Builder
	fmt.Fprintf(&b, "sim %s --topology %s --bytes %d --chunk %d --chains %d --subgroups %d --chain-by %s ",
		c.Op, c.Topology.Name, c.Bytes, c.Chunk, c.Chains, c.Subgroups, c.ChainBy)
	fmt.Fprintf(&b, "--rate %gmbit --latency %v --flow %s --seed %d --timeout %v",
		c.Rate/1e6, c.Latency, c.Flow, c.Seed, c.Timeout)
	opt := func(on bool, format string, args ...any) {
		if on {
			fmt.Fprintf(&b, " "+format, args...)
		}
	}
	opt(operations[c.Op].kind.Rooted(), "--root %d", c.Root)
	opt(c.Counts != nil, "--counts %s", strings.Trim(strings.ReplaceAll(fmt.Sprint(c.Counts), " ", ","), "[]"))
	opt(c.InPlace, "--inplace")
	opt(c.PSNBits > 0, "--psn-bits %d", c.PSNBits)
	opt(c.RecvQueue > 0, "--recv-queue %d", c.RecvQueue)
	opt(c.Queue > 0, "--queue %d", c.Queue)
	opt(c.RecvCost > 0, "--recv-cost %v", c.RecvCost)
	opt(c.Loss > 0, "--loss %g", c.Loss)
	opt(c.LossAll > 0, "--loss-all %g", c.LossAll)
	opt(c.Reorder > 0, "--reorder %g", c.Reorder)
	opt(c.Duplicate > 0, "--duplicate %g", c.Duplicate)
	opt(c.Noise > 0, "--noise %v", c.Noise)
	opt(c.Detour > 0, "--detour %v", c.Detour)
	for _, s := range c.Stalls {
		opt(true, "--stall %d@%v+%v", s.Rank, s.At, s.For)
	}
	for _, x := range c.Crashes {
		opt(true, "--crash %d@%v", x.Rank, x.At)
	}
	for _, f := range c.Aggregators {
		opt(f.Crash, "--crash agg%d@%v", f.Node, f.At)
		opt(!f.Crash && f.For > 0, "--stall agg%d@%v+%v", f.Node, f.At, f.For)
	}
	return b.String()
}
