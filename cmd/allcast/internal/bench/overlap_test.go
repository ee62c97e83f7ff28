package bench

import (
	"errors"
	"testing"

	"github.com/allcast/allcast"
)

func TestOverlapPercent(t *testing.T) {
	for _, c := range [][4]float64{{10, 10, 10, 100}, {10, 10, 20, 0}, {10, 10, 15, 50}, {10, 10, 30, 0}, {
		10, 10, 9,
		100,
	}, {0, 1, 1, 0}} {
		if got := overlapPercent(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("pure %g, compute %g, both %g: %g %%, want %g", c[0], c[1], c[2], got, c[3])
		}
	}
}

// The work grows until it is long enough to extrapolate to the time of the operation.
func TestNextWork(t *testing.T) {
	for _, c := range []struct {
		work         int
		took, target int64
		next         int
		enough       bool
	}{
		{1024, 10, 1000, 2048, false},
		{1024, 500, 1000, 2048, true},
		{1024, 4096, 1000, 250, true},
		{1024, 0, 0, 1, true},
		{1 << 41, 1, 1 << 20, 1 << 61, true},
	} {
		if next, enough := nextWork(c.work, c.took, c.target); next != c.next || enough != c.enough {
			t.Errorf("%+v: %d, %t", c, next, enough)
		}
	}
}

// The percentage is computed from sums over ranks and iterations.
func TestOverlapIsReported(t *testing.T) {
	errs := joined(t, 2, func(comm *allcast.Comm) error {
		b, err := New(t.Context(), comm)
		if err != nil {
			return err
		}
		job := testJob("allgather")
		job.Overlap = true
		// Together: alone 60, computing 60, both 90.
		made := [2]*tally{
			{times: []int64{10, 20}, compute: 20, both: 40},
			{times: []int64{10, 20}, compute: 40, both: 50},
		}[comm.Rank()]
		r, err := b.gather(t.Context(), &trial{Job: job, rounds: 2}, made)
		if err == nil && (r.Overlap == nil || *r.Overlap != 50) {
			t.Errorf("overlap %v, want 50", r.Overlap)
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Iterations with computing are verified too.
func TestOverlapIsVerified(t *testing.T) {
	errs := joined(t, 2, func(comm *allcast.Comm) error {
		b, err := New(t.Context(), comm)
		if err != nil {
			return err
		}
		if comm.Rank() == 1 {
			b.calls += 1000 // contributes data that the other rank does not expect
		}
		c, err := b.newTrial(t.Context(), testJob(Pair), "ring+ring", 4096)
		if err != nil {
			return err
		}
		made := &tally{times: []int64{1}}
		if err := b.measureOverlap(t.Context(), c, made); err != nil {
			return err
		}
		if made.wrong == 0 || len(made.times) != 1 || made.both == 0 {
			t.Errorf("%+v", made)
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
