package main

import (
	"context"
	"time"

	"github.com/allcast/allcast"
)

// perfBench is what one rank measures with.
type perfBench struct {
	comm     *allcast.Comm
	second   *allcast.Comm // for the other half of a pair; nil before the first
	raw      *wholeFile    // nil on all ranks but 0
	calls    uint64        // made so far, the same on all ranks
	barrier  float64       // bytes that this rank sends in one
	computed float64
}

// newPerfBench finds out what a barrier costs: there is one before every
// iteration, which is none of the operation's traffic.
func newPerfBench(ctx context.Context, comm *allcast.Comm) (*perfBench, error) {
	const often = 8
	before := comm.Stats()
	for range often {
		if err := comm.Barrier(ctx); err != nil {
			return nil, err
		}
	}
	return &perfBench{comm: comm, barrier: float64(comm.Stats().SentBytes-before.SentBytes) / often}, nil
}

// tally is what this rank saw of one case.
type tally struct {
	info      allcast.Info
	starts    []int64 // by iteration: ns since 1970, by our clock
	times     []int64 // by iteration: ns
	user, sys int64   // ns
	wrong     int64
	before    allcast.Stats
	after     allcast.Stats
	overlap   overlapTimes
}

// run carries out one case: an operation, an algorithm and a size.
func (b *perfBench) run(ctx context.Context, c *perfCase) (*tally, error) {
	t := &tally{}
	for range c.warmup {
		if err := b.once(ctx, c, t, nil); err != nil {
			return nil, err
		}
	}
	// What is verified counts, what is measured does not.
	*t = tally{wrong: t.wrong, starts: make([]int64, 0, c.rounds), times: make([]int64, 0, c.rounds)}
	if err := b.comm.Barrier(ctx); err != nil {
		return nil, err
	}
	t.before = b.comm.Stats()
	for range c.rounds {
		if err := b.once(ctx, c, t, nil); err != nil {
			return nil, err
		}
	}
	t.after = b.comm.Stats()
	if c.overlap {
		if err := b.measureOverlap(ctx, c, t); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// once is one iteration: contribute, meet, run, verify. Only the operation is timed, and
// what is done meanwhile.
func (b *perfBench) once(ctx context.Context, c *perfCase, t *tally, meanwhile func()) error {
	number := b.calls + 1
	b.calls += uint64(len(c.parts))
	if c.check {
		c.fill(number)
	}
	if err := b.comm.Barrier(ctx); err != nil {
		return err
	}
	user, sys := cpuTimes()
	begin := time.Now()
	reqs, err := c.start()
	if err != nil {
		return err
	}
	if meanwhile != nil {
		meanwhile()
	}
	if err := reqs.wait(ctx); err != nil {
		return err
	}
	took := time.Since(begin)
	user2, sys2 := cpuTimes()
	t.user += user2 - user
	t.sys += sys2 - sys
	t.starts = append(t.starts, begin.UnixNano())
	t.times = append(t.times, took.Nanoseconds())
	t.info = reqs.info()
	if c.check {
		// Not before all are done: on a shared machine it would slow the others down.
		if err := b.comm.Barrier(ctx); err != nil {
			return err
		}
		t.wrong += c.wrong(number)
	}
	return nil
}
