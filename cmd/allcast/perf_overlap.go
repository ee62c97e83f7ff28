package main

import (
	"context"
	"time"
)

// overlapTimes are what OSU's non-blocking benchmarks compute the overlap from: the
// averages, on this rank, of computing alone and of computing during an operation.
type overlapTimes struct {
	compute, both int64 // ns
}

// measureOverlap computes for about as long as the operation takes, alone and
// during the operation. It is a fixed amount of work, not of time: what the operation
// takes from the processor makes it longer. All ranks compute at the same time, so
// that ranks which share a processor do so in both.
func (b *perfBench) measureOverlap(ctx context.Context, c *perfCall, t *tally) error {
	var pure int64
	for _, ns := range t.times {
		pure += ns
	}
	pure /= int64(len(t.times))
	all := []int64{pure}
	if err := b.sum(ctx, all); err != nil {
		return err
	}
	target := time.Duration(all[0] / int64(b.comm.Size()))

	work := 1 << 10
	for {
		if err := b.comm.Barrier(ctx); err != nil {
			return err
		}
		begin := time.Now()
		b.compute(work)
		took := []int64{time.Since(begin).Nanoseconds()}
		if err := b.sum(ctx, took); err != nil {
			return err
		}
		// The sum is the same on all ranks, so all go on or stop.
		mean := max(1, took[0]/int64(b.comm.Size()))
		if mean*4 >= target.Nanoseconds() || work > 1<<40 {
			work = int(max(1, float64(work)*float64(target.Nanoseconds())/float64(mean)))
			break
		}
		work *= 2
	}
	for range c.iters {
		if err := b.comm.Barrier(ctx); err != nil {
			return err
		}
		begin := time.Now()
		b.compute(work)
		t.overlap.compute += time.Since(begin).Nanoseconds() / int64(c.iters)
	}
	for range c.iters {
		d, err := b.once(ctx, c, &tally{}, func() { b.compute(work) })
		if err != nil {
			return err
		}
		t.overlap.both += d.Nanoseconds() / int64(c.iters)
	}
	return nil
}

// compute does some arithmetic that depends on itself, and keeps the result so that
// it must be done.
func (b *perfBench) compute(steps int) {
	x := b.computed + 1
	for range steps {
		x = x*0.999999 + 0.5
	}
	b.computed = x
}

// overlapPercent is how much of the operation's time was left for computing.
func overlapPercent(pure, compute, both float64) float64 {
	if pure <= 0 {
		return 0
	}
	return min(100, max(0, 100*(1-(both-compute)/pure)))
}
