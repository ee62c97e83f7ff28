package main

import (
	"context"
	"time"

	"github.com/allcast/allcast"
)

// perfBench is what one rank measures with.
type perfBench struct {
	comm     *allcast.Comm
	calls    uint64  // made so far, the same on all ranks
	barrier  float64 // bytes that this rank sends in one
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
	times     []int64 // ns by iteration
	user, sys int64   // ns
	wrong     int64
	before    allcast.Stats
	after     allcast.Stats
	overlap   overlapTimes
}

// run carries out one case: an operation, an algorithm and a size.
func (b *perfBench) run(ctx context.Context, c *perfCall) (*tally, error) {
	t := &tally{times: make([]int64, 0, c.iters)}
	for range c.warmup {
		if _, err := b.once(ctx, c, t, nil); err != nil {
			return nil, err
		}
	}
	t.user, t.sys = 0, 0
	if err := b.comm.Barrier(ctx); err != nil {
		return nil, err
	}
	t.before = b.comm.Stats()
	for range c.iters {
		d, err := b.once(ctx, c, t, nil)
		if err != nil {
			return nil, err
		}
		t.times = append(t.times, d.Nanoseconds())
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
func (b *perfBench) once(ctx context.Context, c *perfCall, t *tally, meanwhile func()) (time.Duration, error) {
	b.calls++
	if c.check {
		c.fill(b.calls)
	}
	if err := b.comm.Barrier(ctx); err != nil {
		return 0, err
	}
	user, sys := cpuTimes()
	begin := time.Now()
	req, err := c.start()
	if err != nil {
		return 0, err
	}
	if meanwhile != nil {
		meanwhile()
	}
	if err := req.Wait(ctx); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	user2, sys2 := cpuTimes()
	t.user += user2 - user
	t.sys += sys2 - sys
	t.info = req.Info()
	if c.check {
		// Not before all are done: on a shared machine it would slow the others down.
		if err := b.comm.Barrier(ctx); err != nil {
			return 0, err
		}
		t.wrong += c.wrong(b.calls)
	}
	return took, nil
}
