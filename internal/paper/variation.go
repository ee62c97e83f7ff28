package paper

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/allcast/allcast/internal/background"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/topology"
)

// cause is a reason why two runs of a collective take different times.
type cause struct {
	Name  string
	About string
	set   func(cfg *sim.Config, seed uint64) error
}

// allCauses is the name of the cause that stands for a cluster with other users.
const allCauses = "shared cluster"

// The traffic of other jobs, and two kinds of noise at hosts: see sim.Config.
const (
	otherFlows = 96
	otherShare = 0.25
	stopLength = 20 * time.Microsecond
	reactDelay = 5 * time.Microsecond
	// slowReceiver is about the cost of a received chunk that gives the paper's factors: see throughputs.Fits.
	slowReceiver = 1350 * time.Nanosecond
)

var causes = []cause{
	{"routes", "a hash of both ends selects the way of a unicast flow, as ECMP does; ranks in order", hashRoutes},
	{"placement", "ranks are on random hosts; the destination selects the way", placeRandomly},
	{
		"background",
		fmt.Sprintf("%d flows of other jobs between leaves, with bursts at a host link's rate for %.0f %% of the time; "+
			"ranks in order", otherFlows, 100*otherShare),
		addTraffic,
	},
	{allCauses, "hashed routes, random placement and background together", func(cfg *sim.Config, seed uint64) error {
		if err := addTraffic(cfg, seed); err != nil {
			return err
		}
		if err := hashRoutes(cfg, seed); err != nil {
			return err
		}
		return placeRandomly(cfg, seed)
	}},
	{
		"stops", fmt.Sprintf("each host stops for %v on average, 1 %% of the time, and its NIC continues", stopLength),
		func(cfg *sim.Config, _ uint64) error { cfg.Detour = stopLength; return nil },
	},
	{
		"slow reactions",
		fmt.Sprintf("each host reacts to a reliable message or a completed send after a random delay of %v on average",
			reactDelay),
		func(cfg *sim.Config, _ uint64) error { cfg.Noise = reactDelay; return nil },
	},
}

func hashRoutes(cfg *sim.Config, seed uint64) error {
	cfg.Topology = cfg.Topology.Hash(seed)
	return nil
}

func placeRandomly(cfg *sim.Config, seed uint64) error {
	placement, err := topology.ParsePlacement(fmt.Sprintf("random:%d", seed), cfg.Topology.Hosts, nil)
	if err != nil {
		return err
	}
	cfg.Topology, err = cfg.Topology.Place(placement)
	return err
}

func addTraffic(cfg *sim.Config, seed uint64) error {
	cfg.Background = background.Spec{Flows: otherFlows, Share: otherShare, Seed: seed}
	return nil
}

// contender is an algorithm in a comparison.
type contender struct {
	Name    string
	Op      string
	algo    string
	segment int64
	cost    time.Duration // of a received chunk
	plan    func(p2p.Spec) (*p2p.Plan, error)
}

func (c contender) multicast() bool { return c.algo == "mcast" }

func (c contender) config(g *topology.Graph, bytes int64, seed uint64) sim.Config {
	return sim.Config{
		Op: c.Op, Algo: c.algo, Topology: g, Bytes: bytes, Seed: seed,
		Schedule: sim.Schedule{Segment: c.segment, Chains: 1, Plan: c.plan}, Receiver: sim.Receiver{RecvCost: c.cost},
	}
}

// The collectives of Figure 11.
var (
	multicastBroadcast = contender{Name: "mcast", Op: "broadcast", algo: "mcast"}
	knomialOfUCC       = contender{
		Name: "k-nomial of UCC", Op: "broadcast", algo: "knomial", plan: uccKnomial(0),
	}
	doubleTreeOfUCC = contender{
		Name: "double binary tree of UCC", Op: "broadcast", algo: "binary", plan: uccDoubleTree(true),
	}
	multicastAllgather = contender{Name: "mcast", Op: "allgather", algo: "mcast"}

	slowBroadcast = contender{Name: "mcast, slow receivers", Op: "broadcast", algo: "mcast", cost: slowReceiver}
	slowAllgather = contender{Name: "mcast, slow receivers", Op: "allgather", algo: "mcast", cost: slowReceiver}
	wholeRing     = contender{Name: "ring", Op: "allgather", algo: "ring"}
)

// contenders are all algorithms whose variation is compared.
var contenders = []contender{
	multicastBroadcast, slowBroadcast, knomialOfUCC, doubleTreeOfUCC, multicastAllgather, slowAllgather, wholeRing,
}

// spread is the variation of one contender for one cause.
type spread struct {
	Cause string
	contender
	Bytes     int64
	Seeds     int
	Mean      float64 // us
	Deviation float64 // us
	Range     float64 // maximum less minimum, us
}

// Relative is the deviation in percent of the mean.
func (s spread) Relative() float64 { return 100 * s.Deviation / s.Mean }

func newSpread(cause string, c contender, bytes int64, times []float64) spread {
	var sum, squares, slowest float64
	quickest := math.Inf(1)
	for _, t := range times {
		sum += t
		quickest, slowest = min(quickest, t), max(slowest, t)
	}
	mean := sum / float64(len(times))
	for _, t := range times {
		squares += (t - mean) * (t - mean)
	}
	return spread{
		Cause: cause, contender: c, Bytes: bytes, Seeds: len(times), Mean: mean,
		Deviation: math.Sqrt(squares / float64(len(times))), Range: slowest - quickest,
	}
}

// variations runs the contenders with several seeds, by cause. One seed is one placement, one set of routes and one
// sequence of bursts.
func variations(ctx context.Context, e *Env) ([]spread, error) {
	return cached(e, "variations", func() ([]spread, error) {
		seeds, sizes := 10, map[string]int64{"broadcast": 1 << 20, "allgather": 64 << 10}
		if e.Quick {
			seeds, sizes = 5, map[string]int64{"broadcast": 512 << 10, "allgather": 32 << 10}
		}
		steps := count{env: e, total: len(causes) * len(contenders)}
		var all []spread
		for _, cause := range causes {
			for _, c := range contenders {
				if e.Quick && cause.Name != allCauses {
					continue
				}
				steps.next("%s by %s with %s", c.Op, c.Name, cause.Name)
				s, err := cause.vary(ctx, c, mustParse(Testbed), sizes[c.Op], e.Seed, seeds)
				if err != nil {
					return nil, err
				}
				all = append(all, s)
			}
		}
		return all, nil
	})
}

// vary runs a contender with several seeds, from the first on, two at a time.
func (c cause) vary(
	ctx context.Context, of contender, g *topology.Graph, bytes int64, first uint64, seeds int,
) (spread, error) {
	times, errs := make([]float64, seeds), make([]error, seeds)
	var wg sync.WaitGroup
	for worker := range 2 {
		wg.Go(func() {
			for i := worker; i < seeds; i += 2 {
				cfg := of.config(g, bytes, first+uint64(i))
				if errs[i] = c.set(&cfg, cfg.Seed); errs[i] != nil {
					continue
				}
				var r *sim.Result
				if r, errs[i] = simulate(ctx, cfg); errs[i] == nil {
					times[i] = r.TimeUS
				}
			}
		})
	}
	wg.Wait()
	return newSpread(c.Name, of, bytes, times), errors.Join(errs...)
}
