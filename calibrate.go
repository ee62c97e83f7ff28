package allcast

import (
	"cmp"
	"context"
	"time"

	"github.com/allcast/allcast/internal/wire"
)

// Which algorithm is the fastest depends on the cost of a message, a wake-up, a multicast and a byte on this machine
// and network, which no model knows. Join therefore runs each candidate a few times, at sizes that grow until the
// time budget is spent. All ranks see the same times, and so make the same decisions.
//
// Other collectives are not measured. The algorithm of a reduction determines the order in which floats are added, and
// a job must get the same bits in every run. An Alltoall would open connections between all ranks.
const (
	maxReps       = 4     // repetitions of a size
	maxRepetition = 150e6 // ns that one repetition at a size may take
	maxCalibrated = 64    // ranks above which the benchmark would take too long, and the cost model decides
)

// benchmarks lists what Join measures, in this order.
var benchmarks = []struct {
	kind   wire.CallKind
	budget time.Duration // for the repetitions at all sizes
	totals []int64       // sizes: bytes of all ranks
}{
	{wire.Broadcast, 30 * time.Millisecond, []int64{512, eagerLimit, 128 << 10, 256 << 10, maxTotal}},
	{wire.Allgather, 60 * time.Millisecond, []int64{2 << 10, eagerLimit, 128 << 10, 256 << 10, maxTotal}},
}

const (
	eagerLimit = 64 << 10 // bytes of all ranks up to which a multicast may do without a barrier
	maxTotal   = 1 << 20
)

// calibrate runs the benchmarks on all ranks of the world, if there are several choices.
func (c *Comm) calibrate(ctx context.Context) error {
	if c.Size() == 1 || c.Size() > maxCalibrated || c.job.NoMulticast != "" {
		return nil
	}
	began := time.Now()
	m := &calibration{size: c.Size(), series: map[wire.CallKind]*series{}}
	t := &trial{comm: c, buf: touched(maxTotal)}
	for _, b := range benchmarks {
		t.kind = b.kind
		s, err := t.measureSeries(ctx, float64(b.budget), b.totals)
		if err != nil {
			return err
		}
		m.series[b.kind] = s
	}
	c.job.measured = m
	log := c.job.log()
	for kind, s := range m.series {
		log.Debug("benchmark", "op", kind, "times", s)
	}
	log.Info("benchmark of algorithms done", "took", time.Since(began))
	return nil
}

// trial is a call with its buffers.
type trial struct {
	comm  *Comm
	kind  wire.CallKind
	bytes int64 // as the algorithm is chosen by
	buf   []byte
}

// resize sets the size of the call to about total bytes of all ranks.
func (t *trial) resize(total int64) {
	t.bytes = total
	if t.kind != wire.Broadcast {
		t.bytes = total / int64(t.comm.Size())
		total = t.bytes * int64(t.comm.Size())
	}
	t.buf = t.buf[:total]
}

// measureSeries measures calls of one kind.
func (t *trial) measureSeries(ctx context.Context, budget float64, totals []int64) (*series, error) {
	s := newSeries(t.kind, t.comm.Size())
	left := budget
	for level, total := range totals {
		t.resize(total)
		list, cost := s.promising(t.bytes, maxRepetition)
		if cost > maxRepetition && level > 1 { // the time of one size does not tell how it grows
			break
		}
		if total == eagerLimit {
			s.step = t.bytes
		}
		if level == 0 {
			if err := t.warmUp(ctx, s, list); err != nil {
				return nil, err
			}
		}
		spent, err := t.measure(ctx, s, list, left/float64(len(totals)-level))
		if err != nil {
			return nil, err
		}
		left -= spent
	}
	return s, nil
}

// warmUp runs some choices before the first measurement, which opens connections. The barrier makes a rank that sends
// and returns wait for the ranks that receive.
func (t *trial) warmUp(ctx context.Context, s *series, list []int) error {
	for _, i := range list {
		if err := cmp.Or(t.run(ctx, s.choices[i]), t.comm.Barrier(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// measure measures some choices of a series, and returns the time that it took, in ns. A repetition runs all of them,
// so that a disturbance does not affect one of them alone. It begins only if it fits the budget, except the first two:
// the first one at a size takes longer.
func (t *trial) measure(ctx context.Context, s *series, list []int, budget float64) (spent float64, err error) {
	times := make([][]float64, len(list))
	began := time.Now()
	for rep := range maxReps {
		took := make([]int64, len(list)+1) // the last is the time since began
		for k, i := range list {
			if err := t.comm.Barrier(ctx); err != nil {
				return 0, err
			}
			start := time.Now()
			if err := t.run(ctx, s.choices[i]); err != nil {
				return 0, err
			}
			took[k] = time.Since(start).Nanoseconds()
		}
		took[len(list)] = time.Since(began).Nanoseconds()
		// The slowest rank counts. All ranks then know the same times.
		if err := AllreduceSlice(ctx, t.comm, nil, took, Max, WithAlgorithm(barrierAlgo)); err != nil {
			return 0, err
		}
		for k := range list {
			times[k] = append(times[k], float64(took[k]))
		}
		spent = float64(took[len(list)])
		if cost := spent / float64(rep+1); spent+cost > budget && (rep > 0 || cost > budget) {
			break
		}
	}
	s.add(t.bytes, list, times)
	return spent, nil
}

// run makes the call.
func (t *trial) run(ctx context.Context, how choice) error {
	opts := []CallOption{WithAlgorithm(how.algo), WithChains(how.chains)}
	if t.kind == wire.Broadcast {
		return t.comm.Broadcast(ctx, t.buf, 0, opts...)
	}
	return t.comm.Allgather(ctx, nil, t.buf, opts...)
}

// touched returns memory that the kernel has provided: the first access would disturb a measurement.
func touched(n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i += 1 << 10 {
		b[i] = 1
	}
	return b
}
