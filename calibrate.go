package allcast

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/wire"
)

// The fastest algorithm for a small operation depends on the cost of a message, a wake-up and a
// multicast on this machine, which no model knows. Join therefore runs each candidate a few times at two
// sizes. For larger operations the network dominates, and multicast wins by design. With many ranks
// the benchmark would take too long, and the cost model decides.
const (
	maxReps        = 5         // limit of the repetitions of a trial
	maxRankReps    = 64        // limit of repetitions times ranks
	smallTrial     = 1 << 10   // bytes per rank
	largeTrial     = 64 << 10  // bytes per rank
	largeBroadcast = 256 << 10 // bytes above which a Broadcast always uses multicast
	largeAllgather = 512 << 10 // bytes of all ranks above which an Allgather always uses multicast
)

// trial is one measurement: an algorithm at a size.
type trial struct {
	kind  wire.CallKind
	algo  string
	bytes int64
}

// trials lists the measurements for a world of the given size. The two trials of an algorithm are
// adjacent, with the smaller size first.
func trials(size int) (list []trial) {
	block := max(4<<10, min(largeTrial, int64(largeAllgather/size)))
	for _, t := range []trial{
		{wire.Broadcast, engine.Multicast, largeTrial},
		{wire.Broadcast, "binomial", largeTrial},
		{wire.Allgather, engine.Multicast, block},
		{wire.Allgather, "recursive-doubling", block},
		{wire.Allgather, "ring", block},
	} {
		list = append(list, trial{t.kind, t.algo, smallTrial}, t)
	}
	return list
}

// calibration holds the results of the trials. It is the same on all ranks.
type calibration struct {
	trials []trial
	took   []float64 // ns
}

// best returns the algorithm with the shortest expected time, or "" without a measurement.
func (c *calibration) best(kind wire.CallKind, bytes int64) (algo string) {
	shortest := math.Inf(1)
	for i := 0; c != nil && i < len(c.trials); i += 2 {
		if c.trials[i].kind != kind {
			continue
		}
		if t := c.expectedTime(i, bytes); t < shortest {
			shortest, algo = t, c.trials[i].algo
		}
	}
	return algo
}

// expectedTime returns the expected time of the algorithm of trials i and i+1. It interpolates linearly,
// and is constant below the smaller size.
func (c *calibration) expectedTime(i int, bytes int64) float64 {
	lo, hi := c.trials[i].bytes, c.trials[i+1].bytes
	slope := max(0, c.took[i+1]-c.took[i]) / float64(hi-lo)
	return c.took[i] + slope*float64(max(0, bytes-lo))
}

// calibrate runs the trials on all ranks of the world, if there are several algorithms to choose from.
func (c *Comm) calibrate(ctx context.Context) error {
	reps := min(maxReps, maxRankReps/c.Size())
	if c.Size() == 1 || reps == 0 || c.job.NoMulticast != "" {
		return nil
	}
	list := trials(c.Size())
	took := make([]byte, 8*len(list)*reps)
	for i, t := range list {
		buf := make([]byte, t.bytes)
		if t.kind == wire.Allgather {
			buf = make([]byte, t.bytes*int64(c.Size()))
		}
		for rep := range reps {
			if err := c.Barrier(ctx); err != nil {
				return err
			}
			start := time.Now()
			var err error
			if t.kind == wire.Broadcast {
				err = c.Broadcast(ctx, buf, rep%c.Size(), WithAlgorithm(t.algo))
			} else {
				err = c.Allgather(ctx, nil, buf, WithAlgorithm(t.algo))
			}
			if err != nil {
				return err
			}
			binary.LittleEndian.PutUint64(took[8*(i*reps+rep):], uint64(time.Since(start)))
		}
	}
	all := make([]byte, len(took)*c.Size())
	if err := c.Allgather(ctx, took, all, WithAlgorithm("ring")); err != nil {
		return err
	}
	c.job.measured = newCalibration(list, all, c.Size(), reps)
	return nil
}

// newCalibration combines the times of all ranks. The slowest rank determines the time of a repetition,
// and the fastest repetition the time of a trial.
func newCalibration(list []trial, all []byte, size, reps int) *calibration {
	m := &calibration{trials: list, took: make([]float64, len(list))}
	n := len(all) / size
	for i := range list {
		m.took[i] = math.Inf(1)
		for rep := range reps {
			worst := 0.0
			for r := range size {
				at := r*n + 8*(i*reps+rep)
				worst = max(worst, float64(binary.LittleEndian.Uint64(all[at:])))
			}
			m.took[i] = min(m.took[i], worst)
		}
	}
	return m
}
