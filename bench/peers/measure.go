//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/lab"
)

// sample is one contestant's result at one size in one round.
type sample struct {
	round     int
	time      float64 // us, median over iterations, of the slowest rank
	cpu       float64 // us per operation and rank
	peak      int64   // bytes, of the largest rank
	repaired  float64 // share of all bytes
	algorithm string  // the algorithm that auto chose
	fallback  string  // why Allcast used another algorithm than the one it was told; "" if it did not
}

// key identifies the samples of one table cell.
type key struct {
	op         string
	size       int64
	contestant string
}

// results holds all samples, one per cell and round.
type results struct {
	cfg     *config
	ranks   int
	began   time.Time
	load    string // the machine's load average before the start
	samples map[key][]sample
	best    map[key]string // best algorithm of a peer
	gaps    []string       // errors of failed measurements
	now     int            // current round
}

// Names of the contestants that are not peers. A peer appears twice, as "default" and as "best".
const (
	bareMulticast = "bare multicast"
	auto          = "Allcast auto"
	mcast         = "Allcast mcast"
)

func (r *results) missing(err error) {
	log.Print(err)
	r.gaps = append(r.gaps, err.Error())
}

// schedule says how often an operation runs.
type schedule struct{ iters, warmup int }

// usual returns many iterations for small operations, and few for large ones, which would otherwise take minutes.
func usual(op string, n int64, ranks int) schedule {
	n *= operations[op].received(int64(ranks))
	iters := int(min(50, max(5, (16<<20)/max(1, n))))
	return schedule{iters, max(3, iters/10)}
}

// part returns 1/share of the iterations.
func (s schedule) part(share int) schedule {
	return schedule{max(3, s.iters/share), max(1, s.warmup/share)}
}

func run(ctx context.Context, cfg *config) (err error) {
	bed, err := newTestbed(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bed.close()) }()
	if err := bed.up(ctx, lab.Config{Name: cfg.name, Topology: cfg.topology}); err != nil {
		return err
	}
	if err := settle(ctx); err != nil {
		return err
	}
	r := &results{
		cfg: cfg, ranks: bed.ranks, began: time.Now(), load: loadAverage(),
		samples: make(map[key][]sample), best: make(map[key]string),
	}
	var available []*peer
	for _, m := range peers {
		if !cfg.selects(m.name+" default") && !cfg.selects(m.name+" best") {
			continue
		}
		if err := m.build(ctx, bed); err != nil {
			r.missing(fmt.Errorf("%s is not compared: %w", m.name, err))
			continue
		}
		available = append(available, m)
	}
	for _, op := range cfg.ops {
		for _, m := range available {
			if cfg.selects(m.name + " best") {
				r.tune(ctx, bed, m, op)
			}
		}
	}
	// Write the page after each round, so that an interrupted run leaves the results so far.
	for round := range cfg.rounds {
		r.now = round
		for _, op := range cfg.ops {
			if err := r.round(ctx, bed, available, op); err != nil {
				return err
			}
		}
		if err := r.write(ctx); err != nil {
			return err
		}
	}
	if cfg.json {
		return r.printJSON(os.Stdout)
	}
	_, err = os.Stdout.WriteString(r.tables())
	return err
}

// tune finds a peer's best algorithm at each size. It makes several passes, because other programs
// on this machine may disturb one.
func (r *results) tune(ctx context.Context, bed *testbed, m *peer, op string) {
	sizes := r.cfg.sizesOf(op)
	fastest := make(map[int64]float64)
	for _, a := range slices.Repeat(m.algorithms[op], r.cfg.tune) {
		got, err := m.measure(ctx, bed, op, a, sizes, func(n int64) schedule { return usual(op, n, bed.ranksOf(op)).part(4) })
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			r.missing(err)
		}
		for n, s := range got {
			if t, ok := fastest[n]; !ok || s.time < t {
				fastest[n] = s.time
				r.best[key{op, n, m.name}] = a
			}
		}
		log.Printf("%v: tried %s by %s, %s", time.Since(r.began).Round(time.Second/10), op, m.name, algorithmName(op, a))
	}
}

// round measures all contestants once, one after the other.
func (r *results) round(ctx context.Context, bed *testbed, available []*peer, op string) error {
	sizes := r.cfg.sizesOf(op)
	if operations[op].multicast && r.cfg.selects(bareMulticast) {
		if err := r.blast(ctx, bed, op, sizes); err != nil {
			return err
		}
		r.progress(op, bareMulticast)
	}
	for _, n := range sizes {
		for _, contestant := range allcastAs(op) {
			if !r.cfg.selects(contestant) {
				continue
			}
			got, err := measureAllcast(ctx, bed, op, strings.TrimPrefix(contestant, "Allcast "), n,
				usual(op, n, bed.ranksOf(op)))
			if err != nil {
				if ctx.Err() != nil {
					return err
				}
				r.missing(err)
				continue
			}
			r.add(key{op, n, contestant}, got)
		}
	}
	r.progress(op, "Allcast")
	for _, m := range available {
		if r.cfg.selects(m.name + " default") {
			if err := r.peer(ctx, bed, m, op, "", m.name+" default", sizes); err != nil {
				return err
			}
			r.progress(op, m.name+" default")
		}
		for _, a := range m.algorithms[op] {
			var sized []int64
			for _, n := range sizes {
				if r.best[key{op, n, m.name}] == a {
					sized = append(sized, n)
				}
			}
			if len(sized) == 0 {
				continue
			}
			if err := r.peer(ctx, bed, m, op, a, m.name+" best", sized); err != nil {
				return err
			}
		}
		if len(m.algorithms[op]) > 0 && r.cfg.selects(m.name+" best") {
			r.progress(op, m.name+" best")
		}
	}
	return ctx.Err()
}

func (r *results) progress(op, contestant string) {
	log.Printf("%v: round %d, %s by %s", time.Since(r.began).Round(time.Second/10), r.now+1, op, contestant)
}

func (r *results) add(k key, s sample) {
	s.round = r.now
	r.samples[k] = append(r.samples[k], s)
}

func (r *results) peer(
	ctx context.Context, bed *testbed, m *peer, op, algorithm, contestant string, sizes []int64,
) error {
	got, err := m.measure(ctx, bed, op, algorithm, sizes, func(n int64) schedule { return usual(op, n, bed.ranksOf(op)) })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		r.missing(err)
	}
	for n, s := range got {
		r.add(key{op, n, contestant}, s)
	}
	return nil
}

// minLimitSize is the smallest size for which the limit is measured: latency dominates below.
const minLimitSize = 256 << 10

// blast measures the limit, and converts it into a time.
func (r *results) blast(ctx context.Context, bed *testbed, op string, sizes []int64) error {
	if slices.Max(sizes) < minLimitSize {
		return nil
	}
	b, err := startBlaster(ctx, bed)
	if err != nil {
		return err
	}
	defer b.stop()
	for _, n := range sizes {
		if n < minLimitSize {
			continue
		}
		k := key{op, n, bareMulticast}
		around := 0.
		if before := r.samples[k]; len(before) > 0 {
			around = float64(r.received(op, n)) / before[len(before)-1].time / 1e3
		}
		goodput, err := b.limit(op, n, around)
		if err != nil {
			return err
		}
		if goodput == 0 {
			r.missing(fmt.Errorf("%s %d: the bare multicast sender loses too much at every rate", op, n))
			continue
		}
		r.add(k, sample{time: float64(r.received(op, n)) / goodput / 1e3})
	}
	return nil
}

// received returns the bytes that a rank receives in an operation.
func (r *results) received(op string, n int64) int64 {
	p := int64(r.ranks)
	if k := operations[op].ranks; k > 0 {
		p = int64(k)
	}
	return n * operations[op].received(p)
}
