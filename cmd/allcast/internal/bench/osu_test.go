package bench

import (
	"errors"
	"testing"

	"github.com/allcast/allcast"
)

func TestSchedule(t *testing.T) {
	seven := 7
	for _, c := range []struct {
		osu                  bool
		n, w                 *int
		small, large, warmup int
	}{
		{false, nil, nil, 20, 20, 5},
		{true, nil, nil, 1000, 100, 100},
		{true, &seven, nil, 7, 7, 100},
		{true, nil, &seven, 1000, 100, 7},
		{false, &seven, &seven, 7, 7, 7},
	} {
		j := &Job{OSU: c.osu}
		j.Schedule(c.n, c.w)
		if small, large := j.rounds(4095), j.rounds(4096); small != c.small || large != c.large || j.Warmup != c.warmup {
			t.Errorf("%+v: %d and %d after %d", c, small, large, j.Warmup)
		}
	}
}

// The times of the root do not count.
func TestLeavesOnly(t *testing.T) {
	const root = 1
	job := testJob("broadcast")
	job.OSU, job.Root = true, root
	errs := joined(t, 3, func(comm *allcast.Comm) error {
		b, err := New(t.Context(), comm)
		if err != nil {
			return err
		}
		for _, c := range []struct {
			osu  bool
			want float64
		}{{true, 2}, {false, 9}} {
			job := *job
			job.OSU = c.osu
			made := &tally{times: []int64{int64(comm.Rank()) * 1000}}
			if comm.Rank() == root {
				made.times[0] = 9000
			}
			if _, err := b.comm(t.Context(), &job, 0); err != nil {
				return err
			}
			r, err := b.gather(t.Context(), &trial{Job: &job, rounds: 1}, made)
			if err != nil {
				return err
			}
			if r.Time.Max != c.want {
				t.Errorf("osu %t: %g us, want %g", c.osu, r.Time.Max, c.want)
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
