package sim

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/units"
)

// TestRandomReductions is TestRandom for reductions by aggregators. Aggregators crash, restart and stop as well. Such
// a fault changes no result: the call completes with the right sum.
func TestRandomReductions(t *testing.T) {
	t.Parallel()
	const shards = 4
	all := fewer(uint64(*seeds / 4))
	if *seed != 0 {
		t.Logf("allcast %s --algo %s", commandLine(randomReduction(*seed)), randomReduction(*seed).Algo)
	}
	for shard := range shards {
		t.Run(fmt.Sprint(shard), func(t *testing.T) {
			t.Parallel()
			for s := uint64(shard + 1); s <= all; s += shards {
				if *seed != 0 {
					s = *seed
				}
				cfg := randomReduction(s)
				if msg := checkReduction(cfg); msg != "" {
					t.Fatalf("seed %d: %s\nreplay: go test ./internal/sim -run TestRandomReductions -seed %d\n"+
						"about:  allcast %s --algo %s", s, msg, s, commandLine(cfg), cfg.Algo)
				}
				if *seed != 0 {
					return
				}
			}
		})
	}
}

// randomReduction returns a Config of TestRandom with a reduction, and with faults of aggregators.
func randomReduction(s uint64) Config {
	r := rand.New(rand.NewPCG(s, 0x19c))
	cfg := randomConfig(s)
	switch r.IntN(4) {
	case 0:
		cfg.Op, cfg.Algo, cfg.Counts = "allreduce", "inc", nil
	case 1:
		cfg.Op, cfg.Algo, cfg.Counts = bothAtOnce, []string{"mcast+inc", "ring+inc"}[r.IntN(2)], nil
		cfg.Chains *= r.IntN(2)
	default:
		cfg.Op, cfg.Algo = "reduce-scatter", "inc"
	}
	cfg.Root, cfg.InPlace = 0, r.IntN(2) == 0
	if r.IntN(4) > 0 {
		cfg.Crashes = nil
	}
	for r.IntN(3) == 0 {
		f := AggregatorFault{
			Node: r.IntN(cfg.Topology.TreeSwitches()), At: time.Duration(r.ExpFloat64() * 50e3),
			Crash: r.IntN(3) > 0, Reset: r.IntN(2) == 0,
		}
		if r.IntN(2) == 0 {
			f.For = time.Duration(1 + r.ExpFloat64()*float64(time.Millisecond))
		}
		cfg.Aggregators = append(cfg.Aggregators, f)
	}
	return cfg
}

// maxFallback is the time within which a reduction without a lost rank ends, whatever happens to its aggregators.
const maxFallback = 20 * time.Second

// maxCalm is the time in microseconds that a reduction without faults may take for latencies and noise.
const maxCalm = 2000

func checkReduction(cfg Config) string {
	r, err := Run(cfg)
	if err != nil {
		return err.Error()
	}
	if msg := judgeAlgorithm(&cfg, r); msg != "" {
		return msg
	}
	if limit := float64(maxFallback.Microseconds()); len(cfg.Crashes) == 0 && r.TimeUS > limit {
		return fmt.Sprintf("took %.0f us, more than %.0f", r.TimeUS, limit)
	}
	calm := cfg.Loss+cfg.LossAll+cfg.Straggle+cfg.Reorder == 0 && cfg.Queue == 0 && cfg.RecvQueue == 0 && cfg.Detour == 0
	if !calm || len(cfg.Stalls)+len(cfg.Crashes)+len(cfg.Aggregators) > 0 {
		return ""
	}
	switch limit := 10*r.BoundUS + maxCalm; {
	case r.Fallback != "":
		return "fell back without a fault: " + r.Fallback
	case r.LateChunks+r.RepairedChunks > 0:
		return fmt.Sprintf("%d chunks were asked for and %d fetched without a fault", r.LateChunks, r.RepairedChunks)
	case r.TimeUS > limit:
		return fmt.Sprintf("took %.0f us without a fault, more than %.0f", r.TimeUS, limit)
	}
	return ""
}

// The same seed gives the same result, with every fault at once.
func TestReductionIsDeterministic(t *testing.T) {
	for _, op := range []string{"reduce-scatter", "allreduce"} {
		cfg := troubled(t, op, "fat-tree:9,3,2")
		var first string
		for i := range 3 {
			r := mustReduce(t, cfg)
			r.WallMS = 0
			b, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if i > 0 && string(b) != first {
				t.Fatalf("%s: run %d differs:\n%s\n%s", op, i, first, b)
			}
			first = string(b)
		}
	}
}

// mustReduce runs a reduction that must be right.
func mustReduce(t *testing.T, cfg Config) *Result {
	t.Helper()
	r, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Verified || r.Algo != cfg.Algo {
		t.Fatalf("%s, seed %d: ran %s, wrong on %d ranks, %s %v", cfg.Op, cfg.Seed, r.Algo, r.Wrong, r.Violation, r.Errors)
	}
	return r
}

// troubled is a reduction on a network with all faults.
func troubled(t *testing.T, op, topo string) Config {
	t.Helper()
	cfg := base(t, op, topo, 100_000)
	cfg.Algo, cfg.Chunk = "inc", 1000
	cfg.Loss, cfg.Reorder, cfg.Duplicate, cfg.Straggle = 0.02, 0.05, 0.05, 0.02
	cfg.Noise, cfg.Late = 3*time.Microsecond, 2*time.Microsecond
	return cfg
}

// Sums of floats have the same bits in every run on the same tree, whatever is lost, delayed or reordered, and whether
// aggregators made them or their owners. They are the bits of the tree's order of addition.
func TestReductionFloatBits(t *testing.T) {
	t.Parallel()
	runs := int(fewer(100))
	r := rand.New(rand.NewPCG(19, 0))
	repaired, fellBack := int64(0), 0
	for i := range runs {
		cfg := troubled(t, []string{"reduce-scatter", "allreduce"}[i%2], "fat-tree:9,3,2")
		cfg.floats, cfg.Seed, cfg.dataSeed = true, uint64(i), 7
		cfg.Loss, cfg.Reorder = r.Float64()/10, r.Float64()/4
		cfg.Noise = time.Duration(r.IntN(20_000))
		cfg.Stalls = []units.Stall{{Rank: r.IntN(9), At: time.Duration(r.IntN(50_000)), For: time.Duration(r.IntN(50_000))}}
		if i%5 == 0 {
			at := time.Duration(r.IntN(60_000))
			cfg.Aggregators = []AggregatorFault{{Node: r.IntN(4), At: at, Crash: true, Reset: i%2 == 0}}
		}
		res := mustReduce(t, cfg)
		repaired += res.RepairedChunks
		if res.Fallback != "" {
			fellBack++
		}
	}
	if repaired == 0 || fellBack == 0 {
		t.Errorf("%d chunks were fetched, %d runs did without aggregators", repaired, fellBack)
	}
}

// The test above would notice another order of addition: on these numbers it gives other bits.
func TestFloatOrderMatters(t *testing.T) {
	c := &collective{floats: true, seed: 7}
	in := make([][]byte, 9)
	for i := range in {
		in[i] = make([]byte, 4000)
		c.fill(in[i], i)
	}
	forward, backward := make([]byte, 4000), make([]byte, 4000)
	for i := range in {
		addFloats(forward, forward, in[i])
		addFloats(backward, backward, in[len(in)-1-i])
	}
	differ := 0
	for i := 0; i < 4000; i += 4 {
		x := math.Float32frombits(binary.LittleEndian.Uint32(forward[i:]))
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			t.Fatalf("number %d is %v", i/4, x)
		}
		if x != math.Float32frombits(binary.LittleEndian.Uint32(backward[i:])) {
			differ++
		}
	}
	if differ < 100 {
		t.Errorf("only %d of 1000 sums depend on the order", differ)
	}
}
