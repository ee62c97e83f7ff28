package bench

import (
	"cmp"
	"context"
	"io"
	"time"

	"github.com/allcast/allcast"
)

// Bench measures on one rank.
type Bench struct {
	Raw      io.Writer // destination of the times of all ranks; nil except on rank 0
	Comm     *allcast.Comm
	first    *allcast.Comm // communicator for the operation; nil until needed
	second   *allcast.Comm // communicator for the second half of a pair; nil until needed
	calls    uint64        // number of calls so far, the same on all ranks
	barrier  float64       // bytes that this rank sends per barrier
	computed float64       // result of compute, kept so that the compiler cannot remove the work
}

// New measures the traffic of a barrier: there is one before every iteration, which must not count as traffic of the
// operation.
func New(ctx context.Context, comm *allcast.Comm) (*Bench, error) {
	const barriers = 8
	before := comm.Stats()
	for range barriers {
		if err := comm.Barrier(ctx); err != nil {
			return nil, err
		}
	}
	return &Bench{Comm: comm, barrier: float64(comm.Stats().SentBytes-before.SentBytes) / barriers}, nil
}

// tally holds what this rank measured in one trial.
type tally struct {
	info      allcast.Info
	starts    []int64 // per iteration: ns since 1970 by the local clock
	times     []int64 // per iteration: ns
	user, sys int64   // ns
	idle      float64 // share of the machine's processor time that nothing used, in percent; negative: not known
	wrong     int64
	before    allcast.Stats
	after     allcast.Stats
	// The sums over iterations from which OSU's non-blocking benchmarks derive the overlap, in ns: computing alone, and
	// computing during an operation.
	compute, both int64
}

// Measure runs one algorithm at one size on all ranks. All ranks get the same result.
func (b *Bench) Measure(ctx context.Context, job *Job, algo string, n int64) (*Result, error) {
	c, err := b.newTrial(ctx, job, algo, n)
	if err != nil {
		return nil, err
	}
	t, err := b.run(ctx, c)
	if err != nil {
		return nil, err // without free: the other half of a pair may still use its buffers
	}
	c.free()
	r, err := b.gather(ctx, c, t)
	if err != nil {
		return nil, err
	}
	if job.Raw {
		err = b.record(ctx, r, t)
	}
	return r, err
}

// run does all iterations of one trial.
func (b *Bench) run(ctx context.Context, c *trial) (*tally, error) {
	t := &tally{}
	for range c.Warmup {
		if err := b.once(ctx, c, t, nil); err != nil {
			return nil, err
		}
	}
	// Wrong data counts from the first iteration on, measurements only after the warm-up.
	*t = tally{wrong: t.wrong, starts: make([]int64, 0, c.rounds), times: make([]int64, 0, c.rounds)}
	if err := b.Comm.Barrier(ctx); err != nil {
		return nil, err
	}
	t.before = b.Comm.Stats()
	processors := readProcessors()
	for range c.rounds {
		if err := b.once(ctx, c, t, nil); err != nil {
			return nil, err
		}
	}
	t.idle = processors.idleUntil(readProcessors())
	t.after = b.Comm.Stats()
	if c.Overlap {
		if err := b.measureOverlap(ctx, c, t); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// once does one iteration: contribute, meet, run, verify. The time covers the operation and, if not nil, meanwhile.
func (b *Bench) once(ctx context.Context, c *trial, t *tally, meanwhile func()) error {
	number := b.calls + 1
	b.calls += uint64(len(c.parts))
	if c.Check {
		c.fill(number)
	}
	if err := b.Comm.Barrier(ctx); err != nil {
		return err
	}
	user, sys := cpuTimes()
	begin := time.Now()
	group := c.start()
	requests := group.Requests()
	if meanwhile != nil {
		meanwhile()
	}
	if err := group.Wait(ctx); err != nil {
		return err
	}
	if err := c.finish(ctx); err != nil {
		return err
	}
	took := time.Since(begin) / time.Duration(max(1, c.operation().trips))
	user2, sys2 := cpuTimes()
	t.user += user2 - user
	t.sys += sys2 - sys
	t.starts = append(t.starts, begin.UnixNano())
	t.times = append(t.times, took.Nanoseconds())
	info := c.info(requests)
	info.Fallback = cmp.Or(t.info.Fallback, info.Fallback) // the first one of all iterations
	t.info = info
	if c.Check {
		// Verifying before all ranks are done would slow down the others on a shared machine.
		if err := b.Comm.Barrier(ctx); err != nil {
			return err
		}
		t.wrong += c.wrong(number)
	}
	return nil
}
