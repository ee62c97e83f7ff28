package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/allcast/allcast/internal/protocol"
)

// ErrConfig marks a Config that makes no sense.
var ErrConfig = errors.New("bad simulation")

// Algorithms lists what can be simulated, by operation.
var Algorithms = map[string][]string{
	"broadcast": {"mcast"},
	"allgather": {"mcast"},
}

// Run carries out one simulated collective. It returns an error for a Config
// that makes no sense; how the collective itself ended is in the Result.
func Run(cfg Config) (*Result, error) {
	began := time.Now()
	cfg, shape, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	w, err := newWorld(cfg)
	if err != nil {
		return nil, err
	}
	plan, err := protocol.Plan(shape, w.layout)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	members := make([]int, cfg.Topology.Hosts)
	for i := range members {
		members[i] = i
	}
	for _, h := range w.hosts {
		if err := h.node.AddComm(0, members); err != nil {
			return nil, err
		}
	}
	c := newCollective(1, 0, members, plan, shape, cfg.InPlace, cfg.Seed)
	w.crossings = newCrossings(len(w.links), c.cells[len(c.counts)])
	w.ownerReads = make([]uint16, c.cells[len(c.counts)])
	w.call(c, func(int) int64 { return 0 })
	w.schedule()
	w.loop(w.limit())
	if w.pcap != nil {
		if err := w.pcap.Close(); err != nil {
			return nil, fmt.Errorf("writing the capture: %w", err)
		}
	}
	r := w.result(c)
	r.WallMS = float64(time.Since(began).Microseconds()) / 1000
	return r, nil
}

// schedule lets the configured faults happen.
func (w *world) schedule() {
	for i, s := range w.cfg.Stalls {
		w.push(s.At.Nanoseconds()*1000, evStall, int32(i), nil)
	}
	for i, c := range w.cfg.Crashes {
		w.push(c.At.Nanoseconds()*1000, evCrash, int32(i), nil)
	}
}

// limit is the virtual time at which a run that has not ended is given up: far
// beyond every timeout it may have to wait for.
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

// complete fills in defaults and checks.
func (cfg Config) complete() (Config, protocol.Shape, error) {
	bad := func(format string, args ...any) (Config, protocol.Shape, error) {
		return cfg, protocol.Shape{}, fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...))
	}
	if cfg.Topology == nil {
		return bad("no topology")
	}
	cfg.defaults()
	p := cfg.Topology.Hosts
	kinds := map[string]protocol.Kind{"broadcast": protocol.Broadcast, "allgather": protocol.Allgather}
	kind, ok := kinds[cfg.Op]
	switch {
	case !ok:
		return bad("unknown operation %q: valid are allgather, broadcast", cfg.Op)
	case cfg.Algo != "mcast":
		return bad("unknown algorithm %q for %s: valid is mcast", cfg.Algo, cfg.Op)
	case cfg.Rate <= 0:
		return bad("rate must be above 0")
	case cfg.Latency < 0 || cfg.RecvCost < 0 || cfg.Noise < 0 || cfg.Timeout < 0 || cfg.Deadline < 0:
		return bad("durations must be 0 or more")
	case cfg.Bytes < 0 || cfg.Queue < 0 || cfg.RecvQueue < 0:
		return bad("sizes must be 0 or more")
	case cfg.Queue > 0 && cfg.Queue < int64(cfg.Chunk+udHeader):
		return bad("a queue of %d bytes does not hold one datagram of %d", cfg.Queue, cfg.Chunk+udHeader)
	case cfg.RecvQueue > 0 && cfg.RecvQueue < int64(cfg.Chunk+udHeader):
		return bad("a receive queue of %d bytes does not hold one datagram of %d", cfg.RecvQueue, cfg.Chunk+udHeader)
	case cfg.Counts != nil && (kind != protocol.Allgather || len(cfg.Counts) != p):
		return bad("sizes per rank are for allgather and need one for each of the %d ranks", p)
	case cfg.ChainBy != "rank" && cfg.ChainBy != "rack":
		return bad("unknown chain placement %q: valid are rank, rack", cfg.ChainBy)
	}
	for _, pr := range []float64{cfg.Loss, cfg.LossAll, cfg.Reorder, cfg.Duplicate} {
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
	s := protocol.Shape{
		Kind: kind, Root: cfg.Root, Counts: cfg.Counts, Chunk: cfg.Chunk,
		Chains: cfg.Chains, Subgroups: cfg.Subgroups,
	}
	if s.Counts == nil {
		s.Counts = make([]int64, p)
		for i := range s.Counts {
			if kind == protocol.Allgather || i == cfg.Root {
				s.Counts[i] = cfg.Bytes
			}
		}
	}
	if cfg.ChainBy == "rack" {
		ranks := make([]int, p)
		for i := range ranks {
			ranks[i] = i
		}
		s.Groups = cfg.Topology.ByRack(ranks)
	}
	return cfg, s, nil
}

func (cfg *Config) defaults() {
	if cfg.Algo == "" {
		cfg.Algo = "mcast"
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
