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

// config checks the flags and returns the simulator's configuration. Its errors are usage errors that list the valid
// values.
func (f *flags) config(op string) (sim.Config, error) {
	g, err := topology.Parse(f.Topology)
	if err != nil {
		return sim.Config{}, cli.Usagef("--topology: %v", err)
	}
	// The first failed check counts.
	if err := cmp.Or(f.checkAlgos(op), f.checkNumbers(), f.checkTimes(g.Hosts), f.checkQueues(), f.checkDatapath(),
		f.checkDrawing(g)); err != nil {
		return sim.Config{}, err
	}
	cfg := sim.Config{
		Op: op, Topology: g, InPlace: f.InPlace, Timeout: f.Timeout, Deadline: f.Deadline, Seed: f.Seed,
		Schedule: sim.Schedule{
			Subgroups: f.Subgroups, ChainBy: f.ChainBy, Chunk: int(f.Chunk), PSNBits: f.PSNBits, Radix: f.Radix,
			Segment: int64(f.Segment),
		},
		Network:  sim.Network{Rate: float64(f.Rate), Latency: f.Latency, Queue: int64(f.Queue), Flow: f.Flow},
		Receiver: sim.Receiver{RecvQueue: int64(f.RecvQueue), RecvCost: f.RecvCost},
		Faults: sim.Faults{
			Loss: float64(f.Loss), LossAll: float64(f.LossAll), Reorder: float64(f.Reorder),
			Duplicate: float64(f.Duplicate), Stalls: f.Stall, Detour: f.Detour, Noise: f.Noise,
		},
	}
	if f.Datapath != idealDatapath {
		cfg.Datapath = f.Datapath
	}
	if f.Chains != nil {
		cfg.Chains = *f.Chains
	}
	for _, c := range f.Crash {
		cfg.Crashes = append(cfg.Crashes, sim.Crash{Rank: c.Rank, At: c.At})
	}
	return cfg, nil
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

func (f *flags) checkNumbers() error {
	switch {
	case f.Chains != nil && *f.Chains < 1:
		return cli.Usagef("--chains %d: want 1 or more", *f.Chains)
	case f.Subgroups < 1:
		return cli.Usagef("--subgroups %d: want 1 or more", f.Subgroups)
	case f.Radix < 2:
		return cli.Usagef("--radix %d: want 2 or more", f.Radix)
	case f.Chunk < 1 || f.Chunk > model.MaxChunk:
		return cli.Usagef("--chunk %v: want 1 to %v", f.Chunk, units.Size(model.MaxChunk))
	}
	if _, err := wire.NewLayout(f.PSNBits); err != nil {
		return cli.Usagef("--psn-bits: %v", err)
	}
	return nil
}

// maxDuration bounds every duration on the command line. The simulator counts picoseconds in 63 bits, which is a
// hundred days, and multiplies some of them.
const maxDuration = time.Hour

// checkTimes checks durations, and the ranks and times of faults.
func (f *flags) checkTimes(hosts int) error {
	type named struct {
		flag  string
		value time.Duration
	}
	all := []named{
		{"latency", f.Latency},
		{"recv-cost", f.RecvCost},
		{"detour", f.Detour},
		{"noise", f.Noise},
		{"timeout", f.Timeout},
		{"deadline", f.Deadline},
	}
	for _, s := range f.Stall {
		if err := checkRank("stall", s.Rank, hosts); err != nil {
			return err
		}
		all = append(all, named{"stall", s.At}, named{"stall", s.For})
	}
	for _, c := range f.Crash {
		if err := checkRank("crash", c.Rank, hosts); err != nil {
			return err
		}
		all = append(all, named{"crash", c.At})
	}
	for _, d := range all {
		if d.value < 0 || d.value > maxDuration {
			return cli.Usagef("--%s: %v is out of range; want 0s to %v", d.flag, d.value, maxDuration)
		}
	}
	if f.Timeout == 0 {
		return cli.Usagef("--timeout %v: want more than 0s", f.Timeout)
	}
	return nil
}

// checkQueues refuses queues that are too small for a single chunk.
func (f *flags) checkQueues() error {
	if f.Queue != 0 && int64(f.Queue) < int64(f.Chunk) {
		return cli.Usagef("--queue %v cannot hold a chunk of %v: want lossless or a size of at least that", f.Queue, f.Chunk)
	}
	if f.RecvQueue != 0 && int64(f.RecvQueue) < int64(f.Chunk) {
		return cli.Usagef("--recv-queue %v cannot hold a chunk of %v: want unbounded or a size of at least that",
			f.RecvQueue, f.Chunk)
	}
	return nil
}

func checkRank(flag string, rank, hosts int) error {
	if rank < 0 || rank >= hosts {
		return cli.Usagef("--%s: no rank %d on this network; want 0 to %d", flag, rank, hosts-1)
	}
	return nil
}
