package main

import (
	"context"
	"time"
)

// overlapTimes are what OSU's non-blocking benchmarks compute the overlap from: this
// rank's times of computing alone and of computing during an operation, all iterations together.
type overlapTimes struct {
	compute, both int64 // ns
}

// measureOverlap computes for about as long as the operation takes, alone and
// during the operation. It is a fixed amount of work, not of time: what the operation
// takes from the processor makes it longer. All ranks compute at the same time, so
// that ranks which share a processor do so in both.
func (b *perfBench) measureOverlap(ctx context.Context, c *perfCase, t *tally) error {
	mean, err := b.mean(ctx, total(t.times)/int64(len(t.times)))
	if err != nil {
		return err
	}
	work, err := b.calibrate(ctx, mean)
	if err != nil {
		return err
	}
	for range c.rounds {
		took, err := b.computeAlone(ctx, work)
		if err != nil {
			return err
		}
		t.overlap.compute += took
	}
	both := &tally{}
	for range c.warmup + c.rounds {
		if err := b.once(ctx, c, both, func() { b.compute(work) }); err != nil {
			return err
		}
	}
	t.overlap.both = total(both.times[c.warmup:])
	t.wrong += both.wrong
	return nil
}

// calibrate finds the work that takes so long.
func (b *perfBench) calibrate(ctx context.Context, target int64) (work int, err error) {
	work = 1 << 10
	for enough := false; !enough; {
		took, err := b.computeAlone(ctx, work)
		if err != nil {
			return 0, err
		}
		// The mean is the same on all ranks, so all go on or stop.
		if took, err = b.mean(ctx, took); err != nil {
			return 0, err
		}
		work, enough = nextWork(work, took, target)
	}
	return work, nil
}

// nextWork is what to try after some work took so long; it is enough when that was
// long enough to go by.
func nextWork(work int, took, target int64) (next int, enough bool) {
	took = max(1, took)
	if took >= target/4 || work > 1<<40 {
		return int(max(1, float64(work)*float64(target)/float64(took))), true
	}
	return 2 * work, false
}

// computeAlone is how long work takes while all ranks do it.
func (b *perfBench) computeAlone(ctx context.Context, work int) (ns int64, err error) {
	if err := b.comm.Barrier(ctx); err != nil {
		return 0, err
	}
	begin := time.Now()
	b.compute(work)
	return time.Since(begin).Nanoseconds(), nil
}

// mean is the average over ranks.
func (b *perfBench) mean(ctx context.Context, v int64) (int64, error) {
	all := []int64{v}
	err := b.sum(ctx, all)
	return all[0] / int64(b.comm.Size()), err
}

func total(ns []int64) (sum int64) {
	for _, n := range ns {
		sum += n
	}
	return sum
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
