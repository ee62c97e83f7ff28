package sim

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/model/dpa"
	"github.com/allcast/allcast/internal/node"
)

// complete sets defaults and checks the configuration.
func (cfg Config) complete() (Config, []part, error) {
	if cfg.Topology == nil {
		return cfg, nil, badConfig("no topology")
	}
	cfg.defaults()
	if err := cfg.applyDatapath(); err != nil {
		return cfg, nil, badConfig("%w", err)
	}
	if err := cfg.check(); err != nil {
		return cfg, nil, err
	}
	if cfg.Algo == "auto" {
		if err := cfg.choose(); err != nil {
			return cfg, nil, badConfig("%w", err)
		}
	}
	var parts []part
	algos := strings.Split(cfg.Algo, "+")
	for i, op := range strings.Split(cfg.Op, "+") {
		parts = append(parts, part{algo: algos[i], shape: cfg.shape(operations[op])})
	}
	return cfg, parts, nil
}

func (cfg *Config) check() error {
	p := cfg.Topology.Hosts
	switch {
	case Algorithms[cfg.Op] == nil:
		return badConfig("unknown operation %q: valid are %s",
			cfg.Op, strings.Join(slices.Sorted(maps.Keys(Algorithms)), ", "))
	case cfg.Algo == "auto" && cfg.Op == bothAtOnce:
		return badConfig("auto chooses for one operation at a time: name a pair, %s",
			strings.Join(Algorithms[cfg.Op], ", "))
	case cfg.Algo != "auto" && !slices.Contains(Algorithms[cfg.Op], cfg.Algo):
		return badConfig("unknown algorithm %q for %s: valid are %s",
			cfg.Algo, cfg.Op, strings.Join(Algorithms[cfg.Op], ", "))
	case cfg.Chunk < 1:
		return badConfig("chunk of %d bytes: must be at least 1", cfg.Chunk)
	case cfg.Radix != 0 && cfg.Radix < 2:
		return badConfig("radix %d: must be at least 2", cfg.Radix)
	case cfg.Segment < 0:
		return badConfig("segment of %d bytes: must be 0 or more", cfg.Segment)
	case cfg.Rate <= 0:
		return badConfig("rate must be above 0")
	case min(cfg.Latency, cfg.RecvCost, cfg.Gather, cfg.Late, cfg.Reaction) < 0 ||
		min(cfg.Noise, cfg.Detour, cfg.Timeout, cfg.Deadline) < 0:
		return badConfig("durations must be 0 or more")
	case cfg.Bytes < 0 || cfg.Queue < 0 || cfg.RecvQueue < 0:
		return badConfig("sizes must be 0 or more")
	case cfg.Queue > 0 && cfg.Queue < int64(cfg.Chunk+udHeader):
		return badConfig("a queue of %d bytes does not hold one datagram of %d", cfg.Queue, cfg.Chunk+udHeader)
	case cfg.RecvQueue > 0 && cfg.RecvQueue < int64(cfg.Chunk+udHeader):
		return badConfig("a receive queue of %d bytes does not hold one datagram of %d",
			cfg.RecvQueue, cfg.Chunk+udHeader)
	case cfg.Root < 0 || cfg.Root >= p:
		return badConfig("root %d: must be 0 to %d", cfg.Root, p-1)
	case cfg.Counts != nil && (operations[cfg.Op].owners != everyRank || len(cfg.Counts) != p):
		return badConfig("sizes per rank are for allgather and reduce-scatter, and need one for each of the %d ranks", p)
	case cfg.Background.Flows > 0 && cfg.Topology.Leaves() < 2:
		return badConfig("background traffic needs two leaves: %s has one", cfg.Topology.Name)
	case cfg.ChainBy != "rank" && cfg.ChainBy != "rack":
		return badConfig("unknown chain placement %q: valid are rank, rack", cfg.ChainBy)
	}
	for _, pr := range []float64{cfg.Loss, cfg.LossAll, cfg.Reorder, cfg.Duplicate, cfg.Straggle} {
		if !(pr >= 0 && pr <= 1) {
			return badConfig("probability %v: must be 0 to 1", pr)
		}
	}
	if cfg.LossAll > 0.9 {
		return badConfig("with reliable packets lost %v of the time nothing ends: at most 0.9", cfg.LossAll)
	}
	for _, s := range cfg.Stalls {
		if s.Rank < 0 || s.Rank >= p || s.At < 0 || s.For < 0 {
			return badConfig("stall of rank %d: ranks are 0 to %d, times 0 or more", s.Rank, p-1)
		}
	}
	for _, c := range cfg.Crashes {
		if c.Rank < 0 || c.Rank >= p || c.At < 0 {
			return badConfig("crash of rank %d: ranks are 0 to %d, times 0 or more", c.Rank, p-1)
		}
	}
	for _, f := range cfg.Aggregators {
		if n := cfg.Topology.TreeSwitches(); f.Node < 0 || f.Node >= n || min(f.At, f.For) < 0 {
			return badConfig("fault of aggregator %d: aggregators are 0 to %d, times 0 or more", f.Node, n-1)
		}
	}
	return nil
}

// choose lets the cost model choose the algorithm.
func (cfg *Config) choose() error {
	n := cfg.Bytes
	for _, c := range cfg.Counts {
		n = max(n, c)
	}
	if all := Algorithms[cfg.Op]; len(all) == 1 {
		cfg.Algo, cfg.reason = all[0], all[0]+": there is no other"
		return nil
	}
	c, err := model.Choose(cfg.Op, cfg.Topology.Hosts, n, cfg.net())
	if err != nil {
		return err
	}
	cfg.Algo, cfg.reason = c.Algo, c.Reason
	if c.Chains > 0 {
		cfg.Chains = c.Chains
	}
	if c.Segment > 0 {
		cfg.Segment = c.Segment
	}
	return nil
}

// net describes the network to the cost model.
func (cfg *Config) net() model.Net {
	crossings := 0
	for h := range cfg.Topology.Hosts {
		if cfg.Topology.Hops(h, (h+1)%cfg.Topology.Hosts) > 2 {
			crossings++
		}
	}
	return model.Net{
		Rate: cfg.Rate / 8e9, Latency: float64(cfg.Latency.Nanoseconds()), Hops: cfg.Topology.LongestPath(),
		Crossings: crossings, Chunk: int64(cfg.Chunk),
		Datagram: udHeader, Packet: putHeader, Multicast: true, Inc: true, Eager: node.EagerLimit,
	}
}

// shape returns the shape of one collective of the Config.
func (cfg *Config) shape(op operation) mcast.Shape {
	s := mcast.Shape{
		Kind: op.kind, Root: cfg.Root, Counts: op.blockSizes(cfg), Chunk: cfg.Chunk,
		Chains: cfg.Chains, Subgroups: cfg.Subgroups,
		Streams: mcast.StreamsPerSubgroup(max(1, cfg.Subgroups), cfg.Topology.Hosts),
	}
	if cfg.ChainBy == "rack" {
		s.Groups = cfg.Topology.ByRack(allHosts(cfg.Topology.Hosts))
	}
	return s
}

func (cfg *Config) defaults() {
	if cfg.Algo == "" && len(Algorithms[cfg.Op]) > 0 {
		cfg.Algo = Algorithms[cfg.Op][0]
	}
	if cfg.Chains == 0 {
		cfg.Chains = 1
		if cfg.Op == bothAtOnce {
			// All ranks send at once, at 1/P of the rate each. No root then occupies the sending side
			// that the reduction needs (Appendix B, equation 2).
			cfg.Chains = cfg.Topology.Hosts
		}
	}
	cfg.Flow = cmp.Or(cfg.Flow, "none")
	cfg.ChainBy = cmp.Or(cfg.ChainBy, "rank")
	cfg.Timeout = cmp.Or(cfg.Timeout, 10*time.Second)
}

// ideal is the datapath whose only cost is RecvCost.
const ideal = "ideal"

// applyDatapath replaces the name of the datapath by its cost per chunk and its receive queue.
func (cfg *Config) applyDatapath() error {
	if cfg.Datapath == "" || cfg.Datapath == ideal {
		cfg.Datapath = ideal
		return nil
	}
	d, err := dpa.ParseDatapath(cfg.Datapath)
	if err != nil {
		return err
	}
	if cfg.RecvCost != 0 || cfg.RecvQueue != 0 {
		return errors.New("an accelerator has its own cost and its own receive queue: leave those of the host out")
	}
	pace, err := d.Pace(int64(cfg.Chunk))
	if err != nil {
		return err
	}
	cfg.Datapath, cfg.pace = d.String(), pace
	cfg.RecvQueue = int64(d.Queue) * int64(cfg.Chunk+udHeader)
	return nil
}
