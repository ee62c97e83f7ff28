package allcast

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/wire"
)

// Which algorithm is the fastest for a small operation depends on what a message, a
// wake-up and a multicast cost here, which no model knows. So Join tries: the
// algorithms in question, at two sizes, some times each. Beyond large the network
// counts, and there multicast wins by design. Many ranks make it slow: then a model must
// do.
const (
	calibrateReps  = 5  // at most,
	calibrateRanks = 64 // and fewer with more ranks, until none
	calibrateSmall = 1 << 10
	calibrateLarge = 64 << 10  // of a Broadcast
	calibrateAll   = 512 << 10 // of what an Allgather gathers at most
	large          = 256 << 10 // a Broadcast of more is multicast, and an Allgather that gathers more than calibrateAll
)

// trial is what is measured: one algorithm at one size.
type trial struct {
	kind  wire.CallKind
	algo  string
	bytes int64
}

// trials of a world of so many ranks; those of one algorithm follow each other, smaller
// size first.
func trials(size int) (list []trial) {
	block := max(4<<10, min(calibrateLarge, int64(calibrateAll/size)))
	for _, t := range []trial{
		{wire.Broadcast, engine.Multicast, calibrateLarge},
		{wire.Broadcast, "binomial", calibrateLarge},
		{wire.Allgather, engine.Multicast, block},
		{wire.Allgather, "recursive-doubling", block},
		{wire.Allgather, "ring", block},
	} {
		list = append(list, trial{t.kind, t.algo, calibrateSmall}, t)
	}
	return list
}

// calibration is what the trials gave: the same on all ranks.
type calibration struct {
	trials []trial
	took   []float64 // ns
}

// best names the algorithm that is expected to be the fastest, "" if it was not measured.
func (c *calibration) best(kind wire.CallKind, bytes int64) (algo string) {
	least := math.Inf(1)
	for i := 0; c != nil && i < len(c.trials); i += 2 {
		if c.trials[i].kind != kind {
			continue
		}
		if t := c.expect(i, bytes); t < least {
			least, algo = t, c.trials[i].algo
		}
	}
	return algo
}

// expect is what trial i's algorithm should take: as long as measured, or on the line
// through both measurements.
func (c *calibration) expect(i int, bytes int64) float64 {
	lo, hi := c.trials[i].bytes, c.trials[i+1].bytes
	slope := max(0, c.took[i+1]-c.took[i]) / float64(hi-lo)
	return c.took[i] + slope*float64(max(0, bytes-lo))
}

// calibrate measures, if there is something to choose from. All ranks of the world take
// part.
func (c *Comm) calibrate(ctx context.Context) error {
	reps := min(calibrateReps, calibrateRanks/c.Size())
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

// newCalibration makes of everybody's times one for each trial: that of the slowest rank, in the
// best of the repetitions.
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
