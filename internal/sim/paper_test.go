package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/testenv"
	"github.com/allcast/allcast/internal/topology"
	"github.com/allcast/allcast/internal/units"
)

// base returns a Config with the defaults of the command.
func base(t testing.TB, op, spec string, bytes int64) Config {
	t.Helper()
	g, err := topology.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Op: op, Algo: "mcast", Topology: g, Bytes: bytes, Seed: 1,
		Schedule: Schedule{Chunk: 4096, Chains: 1, Subgroups: 1},
		Network:  Network{Rate: 100e9, Latency: 500 * time.Nanosecond},
	}
}

func mustRun(t testing.TB, cfg Config) *Result {
	t.Helper()
	r, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Algo != "mcast" {
		t.Fatalf("ran %s", r.Algo)
	}
	return r
}

func mustVerify(t testing.TB, cfg Config) *Result {
	t.Helper()
	r := mustRun(t, cfg)
	if !r.Verified {
		t.Fatalf("not verified: %d wrong, %q, %+v", r.Wrong, r.Violation, r.Errors)
	}
	return r
}

func slow(t testing.TB) {
	t.Helper()
	if testenv.Race {
		t.Skip("the race detector makes this run minutes long; make test runs it without")
	}
}

// fewer returns how many of n random runs a test makes: a few with the race detector, all in a long run or if the
// flag -seeds is given, and else a quarter.
func fewer(n uint64) uint64 {
	given := testenv.Soaking()
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "seeds" })
	switch {
	case testenv.Race:
		return n / 20
	case given:
		return n
	}
	return n / 4
}

// Insight 1, claim C3: every byte crosses every link at most once. The other half of claim C10, the
// traffic of the ring, needs the ring.
func TestEveryByteCrossesEveryLinkOnce(t *testing.T) {
	cfg := base(t, "allgather", "fat-tree:188,12,6", 64<<10)
	cfg.Rate = 56e9
	r := mustVerify(t, cfg)
	if r.MaxCrossings != 1 || r.PayloadLinkBytes != r.LinkBytesBound {
		t.Errorf("a byte crossed a link %d times; payload on links %d, minimum %d",
			r.MaxCrossings, r.PayloadLinkBytes, r.LinkBytesBound)
	}
	if over := float64(r.LinkBytes) / float64(r.LinkBytesBound); over > 1.03 {
		t.Errorf("headers and control traffic multiply the bytes by %.3f", over)
	}
	// Claim C7: at this size almost all the time is data movement.
	if share := r.Phases.Multicast / r.TimeUS; share < 0.98 {
		t.Errorf("multicast is %.4f of the time", share)
	}
}

// Section IV: the receive port bounds Allgather.
func TestAllgatherRunsAtLineRate(t *testing.T) {
	slow(t)
	cfg := base(t, "allgather", "fat-tree:188,12,6", 256<<10)
	cfg.Rate = 56e9
	if r := mustVerify(t, cfg); r.TimeUS > 1.05*r.BoundUS {
		t.Errorf("%.1f us, bound %.1f", r.TimeUS, r.BoundUS)
	}
}

// Section III: Broadcast takes constant time.
func TestBroadcastTakesConstantTime(t *testing.T) {
	t.Parallel()
	slow(t)
	few, many := base(t, "broadcast", "fat-tree3:64,32", 8<<20), base(t, "broadcast", "fat-tree3:4096,32", 8<<20)
	few.Rate, many.Rate = 200e9, 200e9
	if a, b := mustVerify(t, few), mustVerify(t, many); b.TimeUS > 1.1*a.TimeUS {
		t.Errorf("64 hosts %.1f us, 4096 hosts %.1f us", a.TimeUS, b.TimeUS)
	}
}

func TestThousandHosts(t *testing.T) {
	t.Parallel()
	slow(t)
	r := mustVerify(t, base(t, "allgather", "fat-tree3:1024,32", 64<<10))
	t.Logf("%d events, %.0f per second", r.Events, float64(r.Events)/r.WallMS*1000)
	if r.MaxCrossings != 1 {
		t.Errorf("a byte crossed a link %d times", r.MaxCrossings)
	}
}

// Section III-C: every lost chunk is repaired over the ring.
func TestHalfLost(t *testing.T) {
	for _, op := range []string{"broadcast", "allgather"} {
		cfg := base(t, op, "fat-tree:16,4,2", 1<<20)
		cfg.Loss = 0.5
		r := mustVerify(t, cfg)
		if r.MaxOwnerReads != 1 || r.RepairedChunks != r.DroppedChunks {
			t.Errorf("%s: a chunk left its owner by fetch %d times; %d dropped, %d repaired",
				op, r.MaxOwnerReads, r.DroppedChunks, r.RepairedChunks)
		}
		if most := r.ChunksTotal / int64(r.Nodes-1); r.RootFetches > most {
			t.Errorf("%s: %d chunks of %d fetched from their owners", op, r.RootFetches, most)
		}
	}
}

// Three ranks each miss the blocks of both others. A rank that answers only when it has all of a range
// would wait for ever.
func TestAllLostOnThreeRanks(t *testing.T) {
	for _, subs := range []int{1, 3} {
		cfg := base(t, "allgather", "star:3", 100_001)
		cfg.Loss, cfg.Subgroups = 1, subs
		if r := mustVerify(t, cfg); r.RepairedChunks != r.ChunksTotal {
			t.Errorf("%d of %d chunks repaired", r.RepairedChunks, r.ChunksTotal)
		}
	}
}

// Credit, beyond the paper: a stopped receiver is not overrun.
func TestCredit(t *testing.T) {
	run := func(flow string) *Result {
		cfg := base(t, "broadcast", "star:8", 64<<20)
		cfg.Rate, cfg.RecvQueue, cfg.Flow = 56e9, 4<<20, flow
		cfg.Stalls = []units.Stall{{Rank: 3, At: time.Millisecond, For: 10 * time.Millisecond}}
		return mustVerify(t, cfg)
	}
	with, without := run("credit"), run("none")
	if with.RepairedChunks*100 > with.ChunksTotal {
		t.Errorf("with credit %d of %d chunks repaired", with.RepairedChunks, with.ChunksTotal)
	}
	if without.RepairedChunks < 5*with.RepairedChunks+1000 {
		t.Errorf("without credit only %d chunks were repaired", without.RepairedChunks)
	}
	// Credit costs nothing if no receiver is slow.
	clean := base(t, "broadcast", "star:8", 64<<20)
	clean.Rate, clean.RecvQueue, clean.Flow = 56e9, 4<<20, "credit"
	if r := mustVerify(t, clean); r.TimeUS > 1.02*r.BoundUS {
		t.Errorf("credit slows a clean run to %.0f us, bound %.0f", r.TimeUS, r.BoundUS)
	}
}

func TestChainsAndSubgroupsWithLoss(t *testing.T) {
	t.Parallel()
	slow(t)
	for seed := uint64(1); seed <= fewer(200); seed++ {
		cfg := base(t, "allgather", "star:13", 100_001)
		cfg.Chains, cfg.Subgroups, cfg.Seed = 4, 3, seed
		cfg.Loss, cfg.Reorder, cfg.Duplicate = 0.01, 0.05, 0.01
		mustVerify(t, cfg)
	}
}

// Any P, M and S work.
func TestEveryShape(t *testing.T) {
	t.Parallel()
	for p := 1; p <= 40; p++ {
		if testenv.Race && p > 9 && p%8 != 5 {
			continue // the run without the race detector covers all sizes
		}
		for m := 1; m <= p; m += 1 + p/5 {
			for s := 1; s <= 8; s++ {
				cfg := base(t, []string{"allgather", "broadcast"}[(p+s)%2], fmt.Sprintf("star:%d", p), int64(1000*s+p))
				cfg.Chunk, cfg.Chains, cfg.Subgroups, cfg.Root, cfg.InPlace = 256, m, s, p/2, s%2 == 0
				cfg.Seed, cfg.Loss, cfg.Reorder, cfg.Duplicate = uint64(p*m*s), 0.01, 0.05, 0.01
				if t.Failed() {
					return
				}
				mustVerify(t, cfg)
			}
		}
	}
}

// A dropped chunk is repaired once. A chunk that is only late is not requested.
func TestNoFetchStorm(t *testing.T) {
	for _, f := range []Faults{
		{Reorder: 0.3},
		{Loss: 0.02, Duplicate: 0.02},
		{Loss: 0.02, Duplicate: 0.02, Reorder: 0.1},
	} {
		cfg := base(t, "allgather", "fat-tree:16,4,2", 1<<20)
		cfg.Faults = f
		r := mustVerify(t, cfg)
		if (r.DroppedChunks > 0) != (f.Loss > 0) || r.RepairedChunks != r.DroppedChunks || r.LateChunks > 0 {
			t.Errorf("%+v: %d chunks dropped, %d repaired, %d late", f, r.DroppedChunks, r.RepairedChunks, r.LateChunks)
		}
	}
}

func TestCrash(t *testing.T) {
	cfg := base(t, "allgather", "star:8", 1<<20)
	cfg.Crashes = []Crash{{Rank: 5, At: 100 * time.Microsecond}}
	r := mustRun(t, cfg)
	if len(r.Errors) != 7 || r.TimeUS > 2*10e6 {
		t.Fatalf("%d errors after %.0f us", len(r.Errors), r.TimeUS)
	}
	for _, e := range r.Errors {
		if e.Culprit != 5 || e.Op != "allgather" || e.Phase != "multicast" || e.Missing == "" {
			t.Errorf("%+v", e)
		}
	}
}

func TestDeadline(t *testing.T) {
	cfg := base(t, "allgather", "star:8", 1<<20)
	cfg.Deadline, cfg.Timeout = 5*time.Millisecond, 100*time.Millisecond
	cfg.Stalls = []units.Stall{{Rank: 3, At: 0, For: time.Second}}
	r := mustRun(t, cfg)
	if len(r.Errors) == 0 {
		t.Fatal("no rank noticed the stalled rank")
	}
	for _, e := range r.Errors {
		if e.Culprit != 3 {
			t.Errorf("rank %d blames %d: %+v", e.Rank, e.Culprit, e)
		}
	}
}

// The same seed gives the same result.
func TestDeterminism(t *testing.T) {
	for seed := uint64(1); seed <= 100; seed++ {
		var out [2]string
		for i := range out {
			cfg := randomConfig(seed)
			if seed%2 == 0 {
				cfg = randomAlgorithm(seed)
			}
			r, err := Run(cfg)
			if err != nil {
				t.Fatal(err)
			}
			r.WallMS = 0
			b, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			out[i] = string(b)
		}
		if out[0] != out[1] {
			t.Fatalf("seed %d:\n%s\n%s", seed, out[0], out[1])
		}
	}
}
