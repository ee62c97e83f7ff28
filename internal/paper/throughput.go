package paper

import (
	"context"
	"fmt"
	"time"

	"github.com/allcast/allcast/internal/sim"
)

// The factors of Figure 11.
const (
	paperKnomial = 1.3
	paperBinary  = 4.75
)

// ranked is an algorithm of Broadcast with its best segment size.
type ranked struct {
	Algo    string
	Segment int64
	*sim.Result
}

// rankedBytes is the size of the ranked Broadcasts.
const rankedBytes = 1 << 20

// rankedBroadcasts runs Allcast's own algorithms for Broadcast on the testbed, multicast first.
func rankedBroadcasts(ctx context.Context, e *Env) ([]ranked, error) {
	return cached(e, "ranked broadcasts", func() ([]ranked, error) {
		var all []ranked
		steps := count{env: e, total: len(sim.Algorithms["broadcast"])}
		for _, algo := range sim.Algorithms["broadcast"] {
			steps.next("broadcast by %s", algo)
			segments := []int64{0, 4 << 10, 16 << 10, 64 << 10, 256 << 10}
			switch {
			case algo == "mcast":
				segments = segments[:1]
			case e.Quick:
				segments = segments[:2] // the best one of each algorithm is among them
			}
			best, with, err := fastest(ctx, mustParse(Testbed), "broadcast", algo, rankedBytes, segments...)
			if err != nil {
				return nil, err
			}
			all = append(all, ranked{algo, with, best})
		}
		return all, nil
	})
}

// bestTree returns the quickest algorithm beside multicast.
func bestTree(all []ranked) ranked {
	best := all[1]
	for _, r := range all[1:] {
		if r.TimeUS < best.TimeUS {
			best = r
		}
	}
	return best
}

// level is an Allgather by multicast beside a ring with its best segment size.
type level struct {
	Bytes       int64
	Mcast, Ring *sim.Result
}

// levels compares Allgathers on the testbed, with ranks in order and ideal receivers.
func levels(ctx context.Context, e *Env) ([]level, error) {
	return cached(e, "levels", func() ([]level, error) {
		sizes, segments := []int64{64 << 10, 128 << 10, 256 << 10}, []int64{0, 16 << 10, 64 << 10}
		if e.Quick {
			sizes, segments = sizes[1:2], segments[1:2]
		}
		var all []level
		steps := count{env: e, total: len(sizes)}
		for _, bytes := range sizes {
			steps.next("allgather of %s", kib(bytes))
			m, err := run(ctx, mustParse(Testbed), "allgather", "mcast", bytes, 0)
			if err != nil {
				return nil, err
			}
			ring, _, err := fastest(ctx, mustParse(Testbed), "allgather", "ring", bytes, segments...)
			if err != nil {
				return nil, err
			}
			all = append(all, level{bytes, m, ring})
		}
		return all, nil
	})
}

// timing is a run of a contender for Figure 11.
type timing struct {
	contender
	Bytes int64
	Cost  time.Duration // of a received chunk
	Where string        // where the ranks are
	Time  float64       // us
}

// Throughput is the rate at which a rank receives, in Gbit/s.
func (t timing) Throughput() float64 {
	bytes := float64(t.Bytes)
	if t.Op == "allgather" {
		bytes *= testbedHosts - 1
	}
	return bytes * 8 / t.Time / 1e3
}

const testbedHosts = 188

// The places of ranks in Figure 11.
const (
	ranksInOrder  = "in order"
	ranksAtRandom = "at random"
)

func (t timing) measure(ctx context.Context, seed uint64) (timing, error) {
	t.cost = t.Cost
	cfg := t.config(mustParse(Testbed), t.Bytes, seed)
	if t.Where == ranksAtRandom {
		if err := placeRandomly(&cfg, seed); err != nil {
			return t, err
		}
	}
	r, err := simulate(ctx, cfg)
	if err != nil {
		return t, err
	}
	t.Time = r.TimeUS
	return t, nil
}

// throughputs are the data of Figure 11, and of the search for its factors.
type throughputs struct {
	Largest  int64    // size at which the factors are compared
	Sweep    []timing // multicast with growing costs of a chunk, at that size
	Rivals   []timing // other Broadcasts, at that size
	Fits     []fit    // by radix of UCC's k-nomial Broadcast, its own choice first
	Curves   []timing // by contender, cost and size
	Together []timing // Allgathers by multicast at the fitted cost, and rings in order and at random
}

// costs of a received chunk to try. The wire takes 597 ns for a chunk of 4 KiB with its headers.
var chunkCosts = []time.Duration{0, 800, 1200, 1600, 2000, 2400}

// fit is the cost of a chunk that gives the paper's factor over a k-nomial Broadcast.
type fit struct {
	Radix  int
	Cost   time.Duration
	Double float64 // factor over the double binary tree at that cost
}

// otherBroadcasts are variants that show which part of UCC's schedules makes them slow.
var otherBroadcasts = []contender{
	doubleTreeOfUCC, knomialOfUCC,
	{Name: "k-nomial of UCC, radix 4", Op: "broadcast", algo: "knomial", plan: uccKnomial(4)},
	{Name: "double binary tree, halves independent", Op: "broadcast", algo: "binary", plan: uccDoubleTree(false)},
	{Name: "k-nomial tree, whole messages", Op: "broadcast", algo: "knomial"},
	{Name: "binary tree, whole messages", Op: "broadcast", algo: "binary", segment: 1 << 30},
	{Name: "binary tree, pipelined", Op: "broadcast", algo: "binary", segment: 4 << 10},
}

func measureThroughputs(ctx context.Context, e *Env) (*throughputs, error) {
	return cached(e, "throughputs", func() (*throughputs, error) {
		sizes := []int64{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}
		blocks := []int64{4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10}
		rivals := otherBroadcasts
		if e.Quick {
			sizes, blocks, rivals = []int64{64 << 10, 512 << 10}, []int64{16 << 10, 128 << 10}, rivals[:3]
		}
		t := &throughputs{Largest: 4 << 20}
		s := search{ctx, e, count{env: e, total: len(chunkCosts) + len(rivals) + 4*(len(sizes)+len(blocks))}}
		for _, cost := range chunkCosts {
			if err := s.add(&t.Sweep, timing{contender: multicastBroadcast, Bytes: t.Largest, Cost: cost}); err != nil {
				return nil, err
			}
		}
		for _, c := range rivals {
			if err := s.add(&t.Rivals, timing{contender: c, Bytes: t.Largest}); err != nil {
				return nil, err
			}
		}
		for i, radix := range []int{uccRadix(testbedHosts), 4} {
			want := t.Rivals[1+i].Time / paperKnomial
			cost, err := fitCost(t.Sweep, want)
			if err != nil {
				return nil, err
			}
			t.Fits = append(t.Fits, fit{radix, cost, t.Rivals[0].Time / want})
		}
		for _, bytes := range sizes {
			for _, c := range []timing{
				{contender: multicastBroadcast},
				{contender: multicastBroadcast, Cost: t.Fits[0].Cost},
				{contender: knomialOfUCC},
				{contender: doubleTreeOfUCC},
			} {
				c.Bytes = bytes
				if err := s.add(&t.Curves, c); err != nil {
					return nil, err
				}
			}
		}
		for _, bytes := range blocks {
			for _, c := range []timing{
				{contender: multicastAllgather},
				{contender: multicastAllgather, Cost: t.Fits[0].Cost},
				{contender: wholeRing},
				{contender: wholeRing, Where: ranksAtRandom},
			} {
				c.Bytes = bytes
				if err := s.add(&t.Together, c); err != nil {
					return nil, err
				}
			}
		}
		return t, nil
	})
}

// search runs the timings of Figure 11.
type search struct {
	ctx   context.Context
	env   *Env
	steps count
}

func (s *search) add(to *[]timing, t timing) error {
	if t.Where == "" {
		t.Where = ranksInOrder
	}
	s.steps.next("%s of %s by %s", t.Op, kib(t.Bytes), t.Name)
	t, err := t.measure(s.ctx, s.env.Seed)
	if err != nil {
		return err
	}
	*to = append(*to, t)
	return nil
}

// fitCost returns the cost of a chunk at which multicast takes a time, between two costs of a sweep.
func fitCost(sweep []timing, want float64) (time.Duration, error) {
	for i := 1; i < len(sweep); i++ {
		a, b := sweep[i-1], sweep[i]
		if a.Time <= want && want < b.Time {
			share := (want - a.Time) / (b.Time - a.Time)
			return a.Cost + time.Duration(share*float64(b.Cost-a.Cost)), nil
		}
	}
	return 0, fmt.Errorf("no cost of a chunk up to %v makes multicast take %.0f us", sweep[len(sweep)-1].Cost, want)
}
