package bench

import (
	"context"
	"time"

	"github.com/allcast/allcast"
)

// measureOverlap computes for about as long as the operation takes, alone and during the operation. The amount of work
// is fixed, not the time: processor time that the operation takes makes computing longer. All ranks compute at the same
// time, so that ranks share processors in both measurements.
func (b *Bench) measureOverlap(ctx context.Context, c *trial, t *tally) error {
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
		t.compute += took
	}
	both := &tally{}
	for range c.Warmup + c.rounds {
		if err := b.once(ctx, c, both, func() { b.compute(work) }); err != nil {
			return err
		}
	}
	t.both = total(both.times[c.Warmup:])
	t.wrong += both.wrong
	return nil
}

// calibrate returns the amount of work that takes the target time, in ns.
func (b *Bench) calibrate(ctx context.Context, target int64) (work int, err error) {
	work = 1 << 10
	for enough := false; !enough; {
		took, err := b.computeAlone(ctx, work)
		if err != nil {
			return 0, err
		}
		// All ranks get the same mean and therefore agree on whether to go on.
		if took, err = b.mean(ctx, took); err != nil {
			return 0, err
		}
		work, enough = nextWork(work, took, target)
	}
	return work, nil
}

// nextWork returns the next amount of work to try. The search ends once an attempt was long enough to extrapolate.
func nextWork(work int, took, target int64) (next int, enough bool) {
	took = max(1, took)
	if took >= target/4 || work > 1<<40 {
		return int(max(1, float64(work)*float64(target)/float64(took))), true
	}
	return 2 * work, false
}

// computeAlone returns how long the work takes while all ranks do it.
func (b *Bench) computeAlone(ctx context.Context, work int) (ns int64, err error) {
	if err := b.Comm.Barrier(ctx); err != nil {
		return 0, err
	}
	begin := time.Now()
	b.compute(work)
	return time.Since(begin).Nanoseconds(), nil
}

// mean returns the average over all ranks.
func (b *Bench) mean(ctx context.Context, v int64) (int64, error) {
	all := []int64{v}
	err := allcast.AllreduceSlice(ctx, b.Comm, nil, all, allcast.Sum)
	return all[0] / int64(b.Comm.Size()), err
}

func total(ns []int64) (sum int64) {
	for _, n := range ns {
		sum += n
	}
	return sum
}

// compute does a chain of dependent arithmetic steps.
func (b *Bench) compute(steps int) {
	x := b.computed + 1
	for range steps {
		x = x*0.999999 + 0.5
	}
	b.computed = x
}

// overlapPercent is the share of the operation's time that was left for computing.
func overlapPercent(pure, compute, both float64) float64 {
	if pure <= 0 {
		return 0
	}
	return min(100, max(0, 100*(1-(both-compute)/pure)))
}
