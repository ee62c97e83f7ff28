package allcast

import (
	"context"
	"time"

	"github.com/allcast/allcast/internal/wire"
)

// Which algorithm is the fastest depends on the cost of a message, a wake-up, a multicast and a byte on this machine
// and network, which no model knows. Join therefore runs each candidate a few times, at sizes that grow until the
// time budget is spent. All ranks see the same times, and so make the same decisions.
//
// Reductions are measured only where the job has aggregators. Their algorithm determines the order in which floats are
// added, and without aggregators a job gets the same bits in every run. Alltoall is not measured: it would open
// connections between all ranks.
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
	{wire.ReduceScatter, 40 * time.Millisecond, []int64{2 << 10, 64 << 10, 256 << 10, maxTotal}},
	{wire.Allreduce, 40 * time.Millisecond, []int64{2 << 10, 64 << 10, 256 << 10, maxTotal}},
}

const (
	eagerLimit = 64 << 10 // bytes of all ranks up to which a multicast may do without a barrier
	maxTotal   = 1 << 20
)

// calibrate runs the benchmarks on all ranks of the world, if there are several choices.
func (c *Comm) calibrate(ctx context.Context) error {
	multicast := c.job.NoMulticast == ""
	if c.Size() == 1 || c.Size() > maxCalibrated || !multicast && !c.aggregates(wire.ReduceScatter) {
		return nil
	}
	began := time.Now()
	m := &calibration{size: c.Size(), series: map[wire.CallKind]*series{}}
	t := &trial{comm: c, buf: touched(maxTotal)}
	for _, b := range benchmarks {
		several := multicast
		if b.kind.Reduces() {
			several = c.aggregates(b.kind)
		}
		if !several {
			continue
		}
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
	if t.kind.Blocks() {
		t.bytes = total / int64(t.comm.Size()) &^ 7 // whole elements
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
		if _, err := t.run(ctx, s.choices[i]); err != nil {
			return err
		}
		if err := t.comm.Barrier(ctx); err != nil {
			return err
		}
	}
	return nil
}

// measure measures some choices of a series, and returns the time that it took, in ns. A repetition runs all of them,
// so that a disturbance does not affect one of them alone. It begins only if it fits the budget, except the first two:
// the first one at a size takes longer. A choice that does not do what its name says is removed from the series.
func (t *trial) measure(ctx context.Context, s *series, list []int, budget float64) (spent float64, err error) {
	times := make([][]float64, len(list))
	fellBack := make([]int64, len(list)) // not 0: aggregators did not make the sums
	began := time.Now()
	for rep := range maxReps {
		took := make([]int64, len(list)+1, 2*len(list)+1) // the last is the time since began
		for k, i := range list {
			if err := t.comm.Barrier(ctx); err != nil {
				return 0, err
			}
			start := time.Now()
			info, err := t.run(ctx, s.choices[i])
			if err != nil {
				return 0, err
			}
			took[k] = time.Since(start).Nanoseconds()
			if info.Fallback != "" {
				fellBack[k] = 1
			}
		}
		took[len(list)] = time.Since(began).Nanoseconds()
		took = append(took, fellBack...)
		// The slowest rank counts, and a rank that fell back. All ranks then know the same.
		if err := AllreduceSlice(ctx, t.comm, nil, took, Max, WithAlgorithm(barrierAlgo)); err != nil {
			return 0, err
		}
		for k := range list {
			times[k] = append(times[k], float64(took[k]))
		}
		copy(fellBack, took[len(list)+1:])
		spent = float64(took[len(list)])
		if cost := spent / float64(rep+1); spent+cost > budget && (rep > 0 || cost > budget) {
			break
		}
	}
	s.add(t.bytes, list, times)
	var fallen []choice
	for k, i := range list {
		if fellBack[k] != 0 {
			fallen = append(fallen, s.choices[i])
		}
	}
	s.remove(fallen)
	return spent, nil
}

// run makes the call and says how it ran.
func (t *trial) run(ctx context.Context, how choice) (Info, error) {
	r, err := t.start(how)
	if err := t.comm.wait(ctx, r, err); err != nil {
		return Info{}, err
	}
	return r.Info(), nil
}

func (t *trial) start(how choice) (*Request, error) {
	opts := []CallOption{WithAlgorithm(how.algo), WithChains(how.chains)}
	switch c := t.comm; t.kind {
	case wire.Broadcast:
		return c.StartBroadcast(t.buf, 0, opts...)
	case wire.ReduceScatter: // of integers, because small floats take some processors long
		return c.StartReduceScatter(t.buf, t.buf[int64(c.Rank())*t.bytes:][:t.bytes], Int32, Sum, opts...)
	case wire.Allreduce:
		return c.StartAllreduce(nil, t.buf, Int32, Sum, opts...)
	}
	return t.comm.StartAllgather(nil, t.buf, opts...)
}

// touched returns memory that the kernel has provided: the first access would disturb a measurement.
func touched(n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i += 1 << 10 {
		b[i] = 1
	}
	return b
}
