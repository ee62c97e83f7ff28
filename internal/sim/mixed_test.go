package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// mixedShare is the divisor of -seeds for random worlds with all algorithms.
const mixedShare = 4

// TestRandomAlgorithms is TestRandom for the algorithms without multicast, with the same faults.
func TestRandomAlgorithms(t *testing.T) {
	t.Parallel()
	for s := uint64(1); s <= fewer(uint64(*seeds/mixedShare)); s++ {
		if *seed != 0 {
			s = *seed
		}
		cfg := randomAlgorithm(s)
		if msg := checkAlgorithm(cfg); msg != "" {
			t.Fatalf("seed %d: %s\nreplay: go test ./internal/sim -run TestRandomAlgorithms -seed %d\n"+
				"about:  allcast %s --algo %s", s, msg, s, commandLine(cfg), cfg.Algo)
		}
		if *seed != 0 {
			return
		}
	}
}

// randomAlgorithm returns a Config of TestRandom with another operation and algorithm.
func randomAlgorithm(s uint64) Config {
	r := rand.New(rand.NewPCG(s, 0xa190))
	cfg := randomConfig(s)
	ops := slices.Sorted(maps.Keys(Algorithms))
	cfg.Op = ops[r.IntN(len(ops))]
	algos := slices.DeleteFunc(slices.Clone(Algorithms[cfg.Op]), func(a string) bool { return a == "mcast" })
	cfg.Algo = algos[r.IntN(len(algos))]
	if operations[cfg.Op].owners != everyRank {
		cfg.Counts = nil
	}
	if operations[cfg.Op].kind.Rooted() {
		cfg.Root = r.IntN(cfg.Topology.Hosts)
	}
	cfg.Segment = []int64{0, 0, 1, int64(3 * cfg.Chunk)}[r.IntN(4)]
	return cfg
}

func checkAlgorithm(cfg Config) string {
	r, err := Run(cfg)
	if err != nil {
		return err.Error()
	}
	return judgeAlgorithm(&cfg, r)
}

// judgeAlgorithm describes what is wrong with the result of a run, or returns "".
func judgeAlgorithm(cfg *Config, r *Result) string {
	crashed := map[int]bool{}
	for _, c := range cfg.Crashes {
		crashed[c.Rank] = true
	}
	switch {
	case r.Algo != cfg.Algo:
		return "ran " + r.Algo
	case r.Violation != "":
		return r.Violation
	case r.Wrong > 0:
		return fmt.Sprintf("wrong data on %d ranks", r.Wrong)
	case len(crashed) == 0 && !r.Verified:
		return fmt.Sprintf("not verified: %+v", r.Errors)
	case len(crashed) == 0 && r.TimeUS < r.BoundUS:
		return fmt.Sprintf("took %v us, which is less than the bound of %v us", r.TimeUS, r.BoundUS)
	}
	for _, e := range r.Errors {
		if !crashed[e.Culprit] {
			return fmt.Sprintf("rank %d blames rank %d, which lives: %+v", e.Rank, e.Culprit, e)
		}
	}
	return ""
}

// TestMixed is TestManyAtOnce with all algorithms concurrently. Communicators 0 and 1 contain all hosts
// and also run in-network reductions.
func TestMixed(t *testing.T) {
	t.Parallel()
	for s := uint64(1); s <= fewer(uint64(*seeds/mixedShare)); s++ {
		if *seed != 0 {
			s = *seed
		}
		if msg := mixed(s); msg != "" {
			t.Fatalf("seed %d: %s\nreplay: go test ./internal/sim -run TestMixed -seed %d", s, msg, s)
		}
		if *seed != 0 {
			return
		}
	}
}

func mixed(s uint64) string {
	r := rand.New(rand.NewPCG(s, 0x313ed))
	cfg := randomConfig(s)
	cfg.Op, cfg.Algo, cfg.Counts, cfg.Root = "allgather", "mcast", nil, 0
	cfg.PSNBits = []int{0, 12, 29, 30, 31}[r.IntN(5)]
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
	var calls []*collective
	for id := range uint32(1 + r.IntN(4)) {
		members := r.Perm(cfg.Topology.Hosts)[:1+r.IntN(cfg.Topology.Hosts)]
		if id < 2 {
			members = allHosts(cfg.Topology.Hosts)
		}
		for _, m := range members {
			if err := w.hosts[m].node.AddComm(id, members); err != nil {
				return err.Error()
			}
		}
		for range 1 + r.IntN(6) {
			c, err := w.collective(uint64(len(calls)+1), randomPart(r, len(members), id < 2, &cfg), members)
			if err != nil {
				return err.Error()
			}
			c.comm = id
			calls = append(calls, c)
			late, from := r.Int64N(20e6), int64(c.req)*10e6
			w.call(c, func(rank int) int64 { return from + int64(rank)*late%20e6 })
		}
	}
	sortStarts(w)
	w.schedule()
	w.loop(w.limit())
	return judge(w, calls)
}

// randomPart returns a random collective of p ranks.
func randomPart(r *rand.Rand, p int, inc bool, cfg *Config) part {
	ops := slices.Sorted(maps.Keys(operations))
	op := ops[r.IntN(len(ops))]
	algos := Algorithms[op]
	a := part{algo: algos[r.IntN(len(algos))]}
	if a.algo == "inc" && !inc {
		a.algo = "ring"
	}
	a.shape = randomShape(r, p, cfg)
	a.shape.Kind, a.shape.Root = operations[op].kind, 0
	if operations[op].owners != everyRank {
		clear(a.shape.Counts)
	}
	if operations[op].owners == rootOnly {
		a.shape.Counts[0] = cfg.Bytes
	}
	return a
}
