//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/lab"
	"github.com/allcast/allcast/internal/topology"
	"github.com/allcast/allcast/internal/units"
)

// oversubscribed compares Allgather on oversubscribed networks, with ranks in order and at random.
type oversubscribed struct {
	name       string
	networks   []string
	rate       units.Rate
	ratio      float64
	bytes      units.Size
	placements int // number of random placements
	rounds     int // number of measurements with ranks in order
	often      schedule
	parts      []string
	only       []string // contestants; empty: all
	docs       string
	out        io.Writer // receives tables

	bed    *testbed
	peer   *peer // Open MPI; nil if it is not compared
	began  time.Time
	load   string
	shares map[cell][]float64 // shares of line rate
	best   map[cell]string    // best algorithm of the peer
	fsdp   []pairSample
	gaps   []string
}

// cell identifies the samples of a table cell.
type cell struct {
	network    string
	random     bool // whether ranks are placed at random
	contestant string
}

// Contestants of the table. Their flag names are those of flagName.
const (
	multicastColumn = "multicast"
	ringColumn      = "ring"
	defaultColumn   = "Open MPI default"
	bestColumn      = "Open MPI best"
)

var columns = []string{multicastColumn, ringColumn, defaultColumn, bestColumn}

// Parts of the benchmark.
const (
	tablePart = "table"
	fsdpPart  = "fsdp"
	agreePart = "agree"
)

func parseOversubscribed(args []string) (*oversubscribed, error) {
	b := &oversubscribed{rate: 100e6, bytes: 128 << 10, out: os.Stdout}
	f := flag.NewFlagSet("peers oversubscribed", flag.ExitOnError)
	f.StringVar(&b.name, "name", "oversub", "name of the lab")
	networks := f.String("networks", "fat-tree:32,4,2 fat-tree:16,4,1 fat-tree:16,4,2", "networks, separated by spaces")
	f.TextVar(&b.rate, "rate", b.rate, "rate of a host's link")
	f.Float64Var(&b.ratio, "oversubscribe", 4, "oversubscription")
	f.TextVar(&b.bytes, "bytes", b.bytes, "bytes that one rank sends")
	f.IntVar(&b.placements, "placements", 5, "number of random placements: random:1, random:2, ...")
	f.IntVar(&b.rounds, "rounds", 3, "number of measurements with ranks in order")
	f.IntVar(&b.often.iters, "iters", 4, "iterations of a measurement; their median counts")
	f.IntVar(&b.often.warmup, "warmup", 1, "iterations before a measurement")
	parts := f.String("parts", tablePart+","+fsdpPart, "table, fsdp, agree")
	only := f.String("only", "", "columns, such as multicast,ring,open-mpi-default,open-mpi-best (default all)")
	f.StringVar(&b.docs, "docs", "docs/oversubscribed.md", "page to write; empty: only print")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	b.networks = strings.Fields(*networks)
	b.parts = strings.Split(*parts, ",")
	for _, p := range b.parts {
		if !slices.Contains([]string{tablePart, fsdpPart, agreePart}, p) {
			return nil, fmt.Errorf("-parts: unknown part %q; valid: table, fsdp, agree", p)
		}
	}
	if *only != "" {
		for _, name := range strings.Split(*only, ",") {
			i := slices.IndexFunc(columns, func(c string) bool { return flagName(c) == name })
			if i < 0 {
				return nil, fmt.Errorf("-only: unknown column %q", name)
			}
			b.only = append(b.only, columns[i])
		}
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("unknown argument %q", f.Arg(0))
	case b.rounds < 1 || b.placements < 1 || b.often.iters < 1 || b.often.warmup < 0:
		return nil, errors.New("-rounds, -placements and -iters: want 1 or more; -warmup: want 0 or more")
	case b.rate <= 0 || b.bytes <= 0:
		return nil, errors.New("-rate and -bytes: want more than 0")
	}
	for _, spec := range b.networks {
		if _, err := lab.NewPlan(b.network(spec)); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// network returns the lab of a topology, with ranks in order.
func (b *oversubscribed) network(spec string) lab.Config {
	return lab.Config{Name: b.name, Topology: spec, Rate: b.rate, Oversubscribe: b.ratio}
}

func (b *oversubscribed) selects(column string) bool {
	return len(b.only) == 0 || slices.Contains(b.only, column)
}

func (b *oversubscribed) run(ctx context.Context) (err error) {
	if b.bed, err = newTestbed(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.bed.close()) }()
	b.began, b.load = time.Now(), loadAverage()
	b.shares, b.best = map[cell][]float64{}, map[cell]string{}
	if slices.Contains(b.parts, tablePart) {
		if b.selects(defaultColumn) || b.selects(bestColumn) {
			b.peer = peers[0]
			if err := b.peer.build(ctx, b.bed); err != nil {
				return fmt.Errorf("%s: %w", b.peer.name, err)
			}
		}
		for _, spec := range b.networks {
			if err := b.measureNetwork(ctx, spec); err != nil {
				return err
			}
		}
	}
	if slices.Contains(b.parts, fsdpPart) {
		if err := b.measurePairs(ctx); err != nil {
			return err
		}
	}
	if len(b.shares) > 0 || len(b.fsdp) > 0 {
		if err := b.write(ctx); err != nil {
			return err
		}
	}
	if slices.Contains(b.parts, agreePart) {
		err = b.agree(ctx)
	}
	return errors.Join(err, b.verdict())
}

// randomly calls f in a lab for each random placement.
func (b *oversubscribed) randomly(ctx context.Context, network lab.Config, f func(placement string) error) error {
	g, err := topology.Parse(network.Topology)
	if err != nil {
		return err
	}
	for seed := 1; seed <= b.placements; seed++ {
		text := fmt.Sprintf("random:%d", seed)
		if network.Placement, err = topology.ParsePlacement(text, g.Hosts, nil); err != nil {
			return err
		}
		if err := b.within(ctx, network, func() error { return f(text) }); err != nil {
			return err
		}
	}
	return nil
}

// within calls f while a lab is up.
func (b *oversubscribed) within(ctx context.Context, network lab.Config, f func() error) error {
	err := b.bed.up(ctx, network)
	if err == nil {
		err = f()
	}
	return errors.Join(err, b.bed.down())
}

// measureNetwork measures all columns of a network, one after the other in each placement.
func (b *oversubscribed) measureNetwork(ctx context.Context, spec string) error {
	err := b.within(ctx, b.network(spec), func() error {
		b.tune(ctx, spec, false)
		for range b.rounds {
			if err := b.measureColumns(ctx, spec, false); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	return b.randomly(ctx, b.network(spec), func(placement string) error {
		if placement == "random:1" {
			b.tune(ctx, spec, true)
		}
		return b.measureColumns(ctx, spec, true)
	})
}

const gatherOp = "allgather"

// measureColumns measures all columns once.
func (b *oversubscribed) measureColumns(ctx context.Context, spec string, random bool) error {
	for _, column := range columns {
		if !b.selects(column) {
			continue
		}
		at := cell{spec, random, column}
		s, err := b.sample(ctx, at)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && s.fallback != "" {
			err = fmt.Errorf("fell back to another algorithm: %s", s.fallback)
		}
		if err != nil {
			b.gap(fmt.Errorf("%s, %s: %w", spec, column, err))
			continue
		}
		share := b.lineTime(b.bed.ranks) / s.time
		b.shares[at] = append(b.shares[at], share)
		log.Printf("%v: %s, %v, %s: %.0f %% of line rate", time.Since(b.began).Round(time.Second/10), spec,
			placementName(random), column, 100*share)
	}
	return nil
}

func placementName(random bool) string {
	if random {
		return "at random"
	}
	return "in order"
}

// lineTime is the time that a host's link needs for the payload that a rank receives, in us.
func (b *oversubscribed) lineTime(ranks int) float64 {
	return float64(ranks-1) * float64(b.bytes) * 8e6 / float64(b.rate)
}

func (b *oversubscribed) gap(err error) {
	log.Print(err)
	b.gaps = append(b.gaps, err.Error())
}

// sample measures a column once.
func (b *oversubscribed) sample(ctx context.Context, at cell) (sample, error) {
	n := int64(b.bytes)
	switch at.contestant {
	case multicastColumn:
		return measureAllcast(ctx, b.bed, gatherOp, "mcast", n, b.often)
	case ringColumn:
		return measureAllcast(ctx, b.bed, gatherOp, "ring", n, b.often)
	case defaultColumn:
		return b.samplePeer(ctx, "", b.often)
	}
	algorithm := b.best[at]
	if algorithm == "" {
		return sample{}, errors.New("no algorithm has worked")
	}
	return b.samplePeer(ctx, algorithm, b.often)
}

func (b *oversubscribed) samplePeer(ctx context.Context, algorithm string, often schedule) (sample, error) {
	n := int64(b.bytes)
	got, err := b.peer.measure(ctx, b.bed, gatherOp, algorithm, []int64{n}, func(int64) schedule { return often })
	return got[n], err
}

// tune finds the peer's best algorithm for the placement of the lab.
func (b *oversubscribed) tune(ctx context.Context, spec string, random bool) {
	at := cell{spec, random, bestColumn}
	if !b.selects(bestColumn) {
		return
	}
	fastest := 0.
	for _, a := range b.peer.algorithms[gatherOp] {
		s, err := b.samplePeer(ctx, a, schedule{iters: 2, warmup: 1})
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			b.gap(err)
			continue
		}
		log.Printf("%v: %s, %s, tried %s, %s: %.0f %% of line rate", time.Since(b.began).Round(time.Second/10), spec,
			placementName(random), b.peer.name, algorithmName(gatherOp, a), 100*b.lineTime(b.bed.ranks)/s.time)
		if fastest == 0 || s.time < fastest {
			fastest, b.best[at] = s.time, a
		}
	}
}

// verdict returns an error if the results are worse than what the page promises.
func (b *oversubscribed) verdict() error {
	var errs []error
	for _, spec := range b.networks {
		for _, random := range []bool{false, true} {
			values := b.shares[cell{spec, random, multicastColumn}]
			if len(values) > 0 && median(values) < minShare {
				errs = append(errs, fmt.Errorf("%s, ranks %s: multicast has a median of %.1f %% of line rate, want %.0f %%", spec,
					placementName(random), 100*median(values), 100*minShare))
			}
		}
	}
	if len(b.fsdp) > 0 {
		if m := median(ratios(b.fsdp)); m < minRatio {
			errs = append(errs, fmt.Errorf("%s: %s is %.1f times as fast as %s, want %v times", fsdpNetwork, fsdpOurs, m,
				fsdpRing, minRatio))
		}
	}
	if len(b.gaps) > 0 {
		errs = append(errs, fmt.Errorf("%d measurements failed", len(b.gaps)))
	}
	return errors.Join(errs...)
}

// What the page promises.
const (
	minShare = 0.95 // of multicast, on every network
	minRatio = 3.0  // of the time of both rings to that of multicast with aggregators
)

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	k := len(sorted)
	return (sorted[k/2] + sorted[(k-1)/2]) / 2
}

// command returns the command line, for the page.
func (b *oversubscribed) command() string {
	return strings.Join(append([]string{"go run ./bench/peers"}, os.Args[1:]...), " ")
}
