package sim

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/report"
	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/topology"
	"github.com/allcast/allcast/internal/units"
	"github.com/allcast/allcast/internal/wire"
)

// config checks the flags and completes the simulator's configuration, which has what the operation's own flags say. m
// is nil for operations that never multicast. Errors are usage errors that list the valid values.
func (f *flags) config(op string, m *multicastFlags, cfg sim.Config) (sim.Config, error) {
	if err := f.applyNetwork(&cfg); err != nil {
		return sim.Config{}, err
	}
	g := cfg.Topology
	if err := checkRank("root", cfg.Root, g.Hosts); err != nil {
		return sim.Config{}, err
	}
	if cfg.Counts != nil && len(cfg.Counts) != g.Hosts {
		return sim.Config{}, cli.Usagef("--counts: %d sizes for %d ranks; want one for each", len(cfg.Counts), g.Hosts)
	}
	// The first failed check counts.
	if err := cmp.Or(f.checkAlgos(op), f.checkChunk(), f.checkTimes(g), f.checkDrawing(g)); err != nil {
		return sim.Config{}, err
	}
	cfg.Op, cfg.Timeout, cfg.Deadline, cfg.Seed = op, f.Timeout, f.Deadline, f.Seed
	cfg.Chunk = int(f.Chunk)
	cfg.Rate, cfg.Latency = float64(f.Rate), f.Latency
	cfg.Faults = sim.Faults{LossAll: float64(f.LossAll), Detour: f.Detour, Noise: f.Noise}
	f.applyFaults(&cfg)
	if m == nil {
		return cfg, nil
	}
	return cfg, m.apply(&cfg, f.Chunk)
}

// applyFaults adds the stalls and crashes of ranks and aggregators to the configuration.
func (f *flags) applyFaults(cfg *sim.Config) {
	for _, s := range f.Stall {
		if s.Aggregator {
			cfg.Aggregators = append(cfg.Aggregators, sim.AggregatorFault{Node: s.Rank, At: s.At, For: s.For})
		} else {
			cfg.Stalls = append(cfg.Stalls, s)
		}
	}
	for _, c := range f.Crash {
		if c.Aggregator {
			cfg.Aggregators = append(cfg.Aggregators, sim.AggregatorFault{Node: c.Rank, At: c.At, Crash: true})
		} else {
			cfg.Crashes = append(cfg.Crashes, sim.Crash{Rank: c.Rank, At: c.At})
		}
	}
}

// apply checks the flags of multicast and adds them to the configuration.
func (m *multicastFlags) apply(cfg *sim.Config, chunk units.Size) error {
	if err := cmp.Or(m.checkNumbers(), checkDuration("recv-cost", m.RecvCost), m.checkQueues(chunk),
		m.checkDatapath(chunk)); err != nil {
		return err
	}
	cfg.InPlace, cfg.ChainBy, cfg.PSNBits, cfg.Radix = m.InPlace, m.ChainBy, m.PSNBits, m.Radix
	cfg.Subgroups = model.Trees(cfg.Topology)
	if m.Subgroups != nil {
		cfg.Subgroups = *m.Subgroups
	}
	cfg.Segment = int64(m.Segment)
	cfg.Queue, cfg.Flow, cfg.RecvQueue, cfg.RecvCost = int64(m.Queue), m.Flow, int64(m.RecvQueue), m.RecvCost
	cfg.Tokens = m.Tokens
	cfg.Loss, cfg.Reorder, cfg.Duplicate = float64(m.Loss), float64(m.Reorder), float64(m.Duplicate)
	if m.Datapath != idealDatapath {
		cfg.Datapath = m.Datapath
	}
	if m.Chains != nil {
		cfg.Chains = *m.Chains
	}
	return nil
}

// checkAlgos splits --algo. The default is the first algorithm of the operation.
func (f *flags) checkAlgos(op string) error {
	known := sim.Algorithms[op]
	valid := strings.Join(known, ", ")
	f.algos = known[:1]
	if f.Algo != nil {
		f.algos = strings.Split(*f.Algo, ",")
	}
	for _, name := range f.algos {
		if !slices.Contains(known, name) && name != "auto" {
			return cli.Usagef("--algo: unknown algorithm %q; valid for %s: %s, auto", name, op, valid)
		}
	}
	if f.Pcap != "" && len(f.algos) > 1 {
		return cli.Usagef("--pcap records one algorithm, but --algo names %d", len(f.algos))
	}
	return nil
}

// checkDrawing refuses networks that are too large for a page before they are simulated.
func (f *flags) checkDrawing(g *topology.Graph) error {
	if f.HTML == "" {
		return nil
	}
	if f.HTML == f.Pcap {
		return cli.Usagef("--html and --pcap name the same file, %s", f.HTML)
	}
	if err := report.Drawable(g); err != nil {
		return cli.Usagef("--html: %v", err)
	}
	return nil
}

func (f *flags) checkChunk() error {
	if f.Chunk < 1 || f.Chunk > model.MaxChunk {
		return cli.Usagef("--chunk %v: want 1 to %v", f.Chunk, units.Size(model.MaxChunk))
	}
	return nil
}

func (m *multicastFlags) checkNumbers() error {
	switch {
	case m.Chains != nil && *m.Chains < 1:
		return cli.Usagef("--chains %d: want 1 or more", *m.Chains)
	case m.Subgroups != nil && *m.Subgroups < 1:
		return cli.Usagef("--subgroups %d: want 1 or more", *m.Subgroups)
	case m.Radix < 2:
		return cli.Usagef("--radix %d: want 2 or more", m.Radix)
	}
	if _, err := wire.NewLayout(m.PSNBits); err != nil {
		return cli.Usagef("--psn-bits: %v", err)
	}
	return nil
}

// maxDuration bounds every duration on the command line. The simulator counts picoseconds in 63 bits, which is a
// hundred days, and multiplies some of them.
const maxDuration = time.Hour

// checkTimes checks durations, and the ranks and times of faults.
func (f *flags) checkTimes(g *topology.Graph) error {
	type named struct {
		flag  string
		value time.Duration
	}
	all := []named{
		{"latency", f.Latency},
		{"detour", f.Detour},
		{"noise", f.Noise},
		{"timeout", f.Timeout},
		{"deadline", f.Deadline},
	}
	for _, s := range f.Stall {
		if err := checkVictim("stall", s.Rank, s.Aggregator, g); err != nil {
			return err
		}
		all = append(all, named{"stall", s.At}, named{"stall", s.For})
	}
	for _, c := range f.Crash {
		if err := checkVictim("crash", c.Rank, c.Aggregator, g); err != nil {
			return err
		}
		all = append(all, named{"crash", c.At})
	}
	for _, d := range all {
		if err := checkDuration(d.flag, d.value); err != nil {
			return err
		}
	}
	if f.Timeout == 0 {
		return cli.Usagef("--timeout %v: want more than 0s", f.Timeout)
	}
	return nil
}

func checkDuration(flag string, d time.Duration) error {
	if d < 0 || d > maxDuration {
		return cli.Usagef("--%s: %v is out of range; want 0s to %v", flag, d, maxDuration)
	}
	return nil
}

// checkQueues refuses queues that are too small for a single chunk.
func (m *multicastFlags) checkQueues(chunk units.Size) error {
	if m.Queue != 0 && int64(m.Queue) < int64(chunk) {
		return cli.Usagef("--queue %v cannot hold a chunk of %v: want lossless or a size of at least that", m.Queue, chunk)
	}
	if m.RecvQueue != 0 && int64(m.RecvQueue) < int64(chunk) {
		return cli.Usagef("--recv-queue %v cannot hold a chunk of %v: want unbounded or a size of at least that",
			m.RecvQueue, chunk)
	}
	return nil
}

func checkRank(flag string, rank, hosts int) error {
	if rank < 0 || rank >= hosts {
		return cli.Usagef("--%s: no rank %d on this network; want 0 to %d", flag, rank, hosts-1)
	}
	return nil
}

// checkVictim checks the rank or the aggregator of a fault.
func checkVictim(flag string, number int, aggregator bool, g *topology.Graph) error {
	if !aggregator {
		return checkRank(flag, number, g.Hosts)
	}
	if n := g.TreeSwitches(); number >= n {
		return cli.Usagef("--%s: no aggregator %d on this network; want agg0 to agg%d", flag, number, n-1)
	}
	return nil
}
