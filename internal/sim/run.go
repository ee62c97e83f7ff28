package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

// ErrConfig marks an invalid Config.
var ErrConfig = errors.New("bad simulation")

// Algorithms lists the algorithms by operation. The first is the default.
var Algorithms = map[string][]string{
	"broadcast":      {"mcast", "binomial", "knomial", "binary", "chain", "scatter-allgather"},
	"allgather":      {"mcast", "ring", "linear", "recursive-doubling", "bruck"},
	"reduce-scatter": {"ring", "recursive-halving", "inc"},
	"allreduce":      {"ring", "recursive-halving", "inc"},
	"barrier":        {"dissemination", "recursive-doubling"},
	bothAtOnce:       {"mcast+inc", "ring+ring", "mcast+ring", "ring+inc"},
}

// bothAtOnce is the pair of collectives of an FSDP step (Appendix B).
const bothAtOnce = "allgather+reduce-scatter"

var kinds = map[string]wire.CallKind{
	"broadcast": wire.Broadcast, "allgather": wire.Allgather, "reduce-scatter": wire.ReduceScatter,
	"allreduce": wire.Allreduce, "barrier": wire.Barrier,
}

// Run simulates one collective. It returns an error for an invalid Config. The Result says how the
// collective itself ended.
func Run(cfg Config) (*Result, error) {
	startTime := time.Now()
	cfg, parts, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	w, err := newWorld(cfg)
	if err != nil {
		return nil, err
	}
	members := allHosts(cfg.Topology.Hosts)
	for _, h := range w.hosts {
		if err := h.node.AddComm(0, members); err != nil {
			return nil, err
		}
	}
	var calls []*collective
	for i, p := range parts {
		c, err := w.collective(uint64(i+1), p, members)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
		calls = append(calls, c)
		w.call(c, func(int) int64 { return 0 })
	}
	if len(calls) == 1 {
		cells := calls[0].cells[len(calls[0].counts)]
		w.crossings = newCrossings(len(w.links), cells)
		w.ownerReads = make([]uint16, cells)
	}
	w.schedule()
	w.loop(w.limit())
	if w.pcap != nil {
		if err := w.pcap.Close(); err != nil {
			return nil, fmt.Errorf("writing the capture: %w", err)
		}
	}
	r := w.result(calls)
	r.WallMS = float64(time.Since(startTime).Microseconds()) / 1000
	return r, nil
}

// allHosts returns the members of a communicator of n hosts in order.
func allHosts(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// part is one of several concurrent collectives.
type part struct {
	algo  string
	shape mcast.Shape
}

// collective prepares a call.
func (w *world) collective(req uint64, p part, members []int) (*collective, error) {
	cfg, shape := &w.cfg, p.shape
	if p.algo == "mcast" {
		plan, err := mcast.Plan(shape, w.layout)
		if err != nil {
			return nil, err
		}
		return newCollective(req, 0, members, plan, shape, cfg.InPlace, cfg.Seed), nil
	}
	if p.algo == "inc" {
		if !slices.Equal(members, allHosts(w.g.Hosts)) {
			return nil, fmt.Errorf("%w: the network reduces for all hosts in order, not for %d of %d",
				ErrConfig, len(members), w.g.Hosts)
		}
		c := newCollective(req, 0, members, nil, shape, cfg.InPlace, cfg.Seed)
		c.orderChunks()
		return c, nil
	}
	spec := func(rank int) p2p.Spec {
		return p2p.Spec{
			Kind: shape.Kind, Rank: rank, Size: len(members), Root: cfg.Root, Bytes: cfg.Bytes, Counts: shape.Counts,
			Radix: cfg.Radix, Segment: cfg.Segment, Align: int64(cfg.Chunk),
		}
	}
	if _, err := p2p.New(p.algo, spec(0)); err != nil {
		return nil, err
	}
	c := newCollective(req, 0, members, nil, shape, cfg.InPlace, cfg.Seed)
	c.p2p = func(rank int) *p2p.Plan {
		plan, err := p2p.New(p.algo, spec(rank))
		if err != nil {
			w.violate("no plan for rank %d: %v", rank, err)
			plan = &p2p.Plan{Kind: shape.Kind, Rank: rank, Size: len(members)}
		}
		return plan
	}
	return c, nil
}

// schedule schedules the configured faults.
func (w *world) schedule() {
	for i, s := range w.cfg.Stalls {
		w.push(s.At.Nanoseconds()*1000, evStall, int32(i), nil)
	}
	if w.cfg.Detour > 0 {
		for i := range w.hosts {
			w.push(w.untilDetour(), evDetour, int32(i), nil)
		}
	}
	for i, c := range w.cfg.Crashes {
		w.push(c.At.Nanoseconds()*1000, evCrash, int32(i), nil)
	}
}

// limit returns the virtual time at which an unfinished run is abandoned. It is far beyond every timeout
// that the run may have to wait for.
func (w *world) limit() int64 {
	t := 20*w.cfg.Timeout + 4*w.cfg.Deadline + time.Hour
	for _, s := range w.cfg.Stalls {
		t += s.At + s.For
	}
	for _, c := range w.cfg.Crashes {
		t += c.At
	}
	return t.Nanoseconds() * 1000
}

// complete sets defaults and checks the configuration.
func (cfg Config) complete() (Config, []part, error) {
	bad := func(format string, args ...any) (Config, []part, error) {
		return cfg, nil, fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...))
	}
	if cfg.Topology == nil {
		return bad("no topology")
	}
	cfg.defaults()
	if err := cfg.applyDatapath(); err != nil {
		return bad("%v", err)
	}
	p := cfg.Topology.Hosts
	switch {
	case Algorithms[cfg.Op] == nil:
		return bad("unknown operation %q: valid are %s",
			cfg.Op, strings.Join(slices.Sorted(maps.Keys(Algorithms)), ", "))
	case cfg.Algo == "auto" && cfg.Op == bothAtOnce:
		return bad("auto chooses for one operation at a time: name a pair, %s",
			strings.Join(Algorithms[cfg.Op], ", "))
	case cfg.Algo != "auto" && !slices.Contains(Algorithms[cfg.Op], cfg.Algo):
		return bad("unknown algorithm %q for %s: valid are %s",
			cfg.Algo, cfg.Op, strings.Join(Algorithms[cfg.Op], ", "))
	case cfg.Chunk < 1:
		return bad("chunk of %d bytes: must be at least 1", cfg.Chunk)
	case cfg.Radix != 0 && cfg.Radix < 2:
		return bad("radix %d: must be at least 2", cfg.Radix)
	case cfg.Segment < 0:
		return bad("segment of %d bytes: must be 0 or more", cfg.Segment)
	case cfg.Rate <= 0:
		return bad("rate must be above 0")
	case min(cfg.Latency, cfg.RecvCost, cfg.Gather, cfg.Late, cfg.Noise, cfg.Detour, cfg.Timeout, cfg.Deadline) < 0:
		return bad("durations must be 0 or more")
	case cfg.Bytes < 0 || cfg.Queue < 0 || cfg.RecvQueue < 0:
		return bad("sizes must be 0 or more")
	case cfg.Queue > 0 && cfg.Queue < int64(cfg.Chunk+udHeader):
		return bad("a queue of %d bytes does not hold one datagram of %d", cfg.Queue, cfg.Chunk+udHeader)
	case cfg.RecvQueue > 0 && cfg.RecvQueue < int64(cfg.Chunk+udHeader):
		return bad("a receive queue of %d bytes does not hold one datagram of %d",
			cfg.RecvQueue, cfg.Chunk+udHeader)
	case cfg.Root < 0 || cfg.Root >= p:
		return bad("root %d: must be 0 to %d", cfg.Root, p-1)
	case cfg.Counts != nil && ((cfg.Op != "allgather" && cfg.Op != "reduce-scatter") || len(cfg.Counts) != p):
		return bad("sizes per rank are for allgather and reduce-scatter, and need one for each of the %d ranks", p)
	case cfg.ChainBy != "rank" && cfg.ChainBy != "rack":
		return bad("unknown chain placement %q: valid are rank, rack", cfg.ChainBy)
	}
	for _, pr := range []float64{cfg.Loss, cfg.LossAll, cfg.Reorder, cfg.Duplicate, cfg.Straggle} {
		if !(pr >= 0 && pr <= 1) {
			return bad("probability %v: must be 0 to 1", pr)
		}
	}
	if cfg.LossAll > 0.9 {
		return bad("with reliable packets lost %v of the time nothing ends: at most 0.9", cfg.LossAll)
	}
	for _, s := range cfg.Stalls {
		if s.Rank < 0 || s.Rank >= p || s.At < 0 || s.For < 0 {
			return bad("stall of rank %d: ranks are 0 to %d, times 0 or more", s.Rank, p-1)
		}
	}
	for _, c := range cfg.Crashes {
		if c.Rank < 0 || c.Rank >= p || c.At < 0 {
			return bad("crash of rank %d: ranks are 0 to %d, times 0 or more", c.Rank, p-1)
		}
	}
	if cfg.Algo == "auto" {
		if err := cfg.choose(); err != nil {
			return bad("%v", err)
		}
	}
	var parts []part
	algos := strings.Split(cfg.Algo, "+")
	for i, op := range strings.Split(cfg.Op, "+") {
		parts = append(parts, part{algo: algos[i], shape: cfg.shape(kinds[op])})
	}
	return cfg, parts, nil
}

// choose lets the cost model choose the algorithm.
func (cfg *Config) choose() error {
	n := cfg.Bytes
	for _, c := range cfg.Counts {
		n = max(n, c)
	}
	hops := 0
	for _, to := range []int{1, cfg.Topology.Hosts / 2, cfg.Topology.Hosts - 1} {
		hops = max(hops, cfg.Topology.Hops(0, to%cfg.Topology.Hosts))
	}
	c, err := model.Choose(cfg.Op, cfg.Topology.Hosts, n, model.Net{
		Rate: cfg.Rate / 8e9, Latency: float64(cfg.Latency.Nanoseconds()), Hops: hops, Chunk: int64(cfg.Chunk),
		Datagram: udHeader, Packet: putHeader, Multicast: true, Inc: true, Eager: node.EagerLimit,
	})
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

// shape returns the shape of one collective of the Config.
func (cfg *Config) shape(kind wire.CallKind) mcast.Shape {
	p := cfg.Topology.Hosts
	s := mcast.Shape{
		Kind: kind, Root: cfg.Root, Counts: cfg.Counts, Chunk: cfg.Chunk,
		Chains: cfg.Chains, Subgroups: cfg.Subgroups,
	}
	if s.Counts == nil {
		s.Counts = make([]int64, p)
		for i := range s.Counts {
			if kind == wire.Allgather || kind == wire.ReduceScatter || (i == cfg.Root && kind != wire.Barrier) {
				s.Counts[i] = cfg.Bytes
			}
		}
	}
	if cfg.ChainBy == "rack" {
		s.Groups = cfg.Topology.ByRack(allHosts(p))
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
	if cfg.Flow == "" {
		cfg.Flow = "none"
	}
	if cfg.ChainBy == "" {
		cfg.ChainBy = "rank"
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
}
