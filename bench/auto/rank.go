//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/allcast/allcast"
)

const (
	trialRounds = 3 // rounds after which slow choices are left out
	slow        = 2 // ratio to the fastest choice from which on a choice is slow
)

// A choice is a way to carry out an operation: auto, or fixed.
type choice struct {
	Algo   string
	Chains int // 0: the default
}

func (c choice) String() string {
	if c.Chains > 0 {
		return fmt.Sprintf("%s/%d", c.Algo, c.Chains)
	}
	return c.Algo
}

// measurement holds the times of one operation at one size.
type measurement struct {
	Operation string
	Bytes     int64
	Join      time.Duration // of the slowest rank, with calibration
	Took      choice        // choice of auto
	Choices   []choice      // auto first
	Times     [][]int64     // by choice and round: ns of the slowest rank; fewer rounds if the choice is slow
}

// choices lists auto and all fixed choices for an operation. Those by aggregators need some.
func choices(operation string, ranks int, aggregators bool) []choice {
	all := []choice{{Algo: "auto"}}
	for _, algo := range allcast.Algorithms(operation) {
		switch {
		case algo == "inc" && !aggregators:
		case algo != "mcast":
			all = append(all, choice{Algo: algo})
		case operation == "broadcast":
			all = append(all, choice{algo, 1})
		default:
			for chains := 1; chains < ranks; chains *= 2 {
				all = append(all, choice{algo, chains})
			}
			all = append(all, choice{algo, ranks})
		}
	}
	return all
}

func rank(text string) error {
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	ctx := context.Background()
	begin := time.Now()
	c, err := allcast.Join(ctx, allcast.Options{})
	if err != nil {
		return err
	}
	if err := measureAll(ctx, c, &s, time.Since(begin)); err != nil {
		return errors.Join(err, c.Abort(), c.Close())
	}
	return c.Close()
}

// measureAll measures all operations and sizes of a spec. Rank 0 writes the results.
func measureAll(ctx context.Context, c *allcast.Comm, s *spec, joining time.Duration) error {
	joined := []int64{joining.Nanoseconds()}
	if err := slowest(ctx, c, joined); err != nil {
		return err
	}
	aggregators, _ := c.Aggregation() // the same on all ranks
	var all []measurement
	for _, op := range s.Operations {
		for _, n := range s.Sizes {
			m := measurement{Operation: op, Bytes: n, Join: time.Duration(joined[0])}
			m.Choices = choices(op, c.Size(), aggregators)
			if err := m.measure(ctx, c, s.Rounds); err != nil {
				return err
			}
			all = append(all, m)
			if slices.Min(m.Times[0]) > s.MaxCall.Nanoseconds() {
				break
			}
		}
	}
	if c.Rank() > 0 {
		return nil
	}
	out, err := os.Create(s.Out)
	if err != nil {
		return err
	}
	e := json.NewEncoder(out)
	for i := range all {
		if err := e.Encode(&all[i]); err != nil {
			return errors.Join(err, out.Close())
		}
	}
	return out.Close()
}

// slowest replaces each time by the longest of all ranks.
func slowest(ctx context.Context, c *allcast.Comm, times []int64) error {
	return allcast.AllreduceSlice(ctx, c, nil, times, allcast.Max, allcast.WithAlgorithm("ring"))
}

// measure runs all rounds of one operation at one size. The order of the choices is random, because the end of a
// call delays the next one, on other ranks of the machine.
func (m *measurement) measure(ctx context.Context, c *allcast.Comm, rounds int) error {
	b := newBuffers(c, m.Operation, m.Bytes)
	m.Times = make([][]int64, len(m.Choices))
	left := make([]int, len(m.Choices)) // choices that are not slow
	for i := range left {
		left[i] = i
		if _, err := m.call(ctx, c, b, i); err != nil { // plans, buffers and connections exist after that
			return err
		}
		if err := b.check(c); err != nil {
			return fmt.Errorf("%s of %d bytes by %v: %w", m.Operation, m.Bytes, m.Choices[i], err)
		}
	}
	order := rand.New(rand.NewPCG(uint64(m.Bytes), 0)) // the same on all ranks
	for round := range rounds {
		times := make([]int64, len(left))
		for _, at := range order.Perm(len(left)) {
			took, err := m.call(ctx, c, b, left[at])
			if err != nil {
				return err
			}
			times[at] = took.Nanoseconds()
		}
		if err := slowest(ctx, c, times); err != nil {
			return err
		}
		for k, i := range left {
			m.Times[i] = append(m.Times[i], times[k])
		}
		if round+1 == trialRounds {
			left = m.withoutSlow(left)
		}
	}
	return nil
}

// withoutSlow removes the choices that have been slow in all rounds. Auto stays.
func (m *measurement) withoutSlow(left []int) []int {
	fastest := slices.Max(m.Times[0])
	for _, i := range left {
		fastest = min(fastest, slices.Max(m.Times[i]))
	}
	return slices.DeleteFunc(left, func(i int) bool { return i > 0 && slices.Min(m.Times[i]) > slow*fastest })
}

// call makes one call after a barrier and returns its time on this rank.
func (m *measurement) call(ctx context.Context, c *allcast.Comm, b *buffers, i int) (time.Duration, error) {
	if err := c.Barrier(ctx); err != nil {
		return 0, err
	}
	begin := time.Now()
	r, err := starters[m.Operation](c, b,
		allcast.WithAlgorithm(m.Choices[i].Algo), allcast.WithChains(m.Choices[i].Chains))
	if err == nil {
		err = r.Wait(ctx)
	}
	if err != nil {
		return 0, err
	}
	took := time.Since(begin)
	if info := r.Info(); i == 0 {
		m.Took = choice{info.Algorithm, info.Chains}
	}
	return took, nil
}
