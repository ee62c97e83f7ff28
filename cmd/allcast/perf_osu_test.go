package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/allcast/allcast"
)

func TestPerfSchedule(t *testing.T) {
	seven := 7
	for _, c := range []struct {
		osu                  bool
		n, w                 *int
		small, large, warmup int
	}{
		{false, nil, nil, 20, 20, 0},
		{true, nil, nil, 1000, 100, 100},
		{true, &seven, nil, 7, 7, 100},
		{true, nil, &seven, 1000, 100, 7},
		{false, &seven, &seven, 7, 7, 7},
	} {
		j := &perfJob{osu: c.osu}
		j.schedule(c.n, c.w)
		if small, large := j.rounds(4095), j.rounds(4096); small != c.small || large != c.large || j.warmup != c.warmup {
			t.Errorf("%+v: %d and %d after %d", c, small, large, j.warmup)
		}
	}
}

// The method's own numbers, as far as the output tells.
func TestPerfOSU(t *testing.T) {
	lines := jsonOf(t, "perf broadcast --ranks 2 --osu --algo mcast -b 4095 -e 8190 -f 2 --json")
	for i, iters := range []float64{1000, 100} {
		if l := lines[i]; l["iters"] != iters || l["warmup"] != 100. || l["timed"] != "leaves" || l["wrong"] != 0. {
			t.Errorf("%v", l)
		}
	}
	l := jsonOf(t, "perf allgather --ranks 2 --osu -b 64 -n 3 -w 1 --json")[0]
	if l["iters"] != 3. || l["warmup"] != 1. || l["timed"] != "all" {
		t.Errorf("%v", l)
	}
}

func TestPerfOSUTable(t *testing.T) {
	o := finish(t, process(t, fields("perf broadcast --ranks 2 --osu -b 8K -c 0")...))
	for _, want := range []string{"1000 iterations below 4K and 100 from there on after 100 to warm up", "of the slowest leaf"} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("the table does not say %q:\n%s%s", want, o.stdout, o.stderr)
		}
	}
}

// The root's times do not count, whatever they are.
func TestPerfLeavesOnly(t *testing.T) {
	const root = 1
	job := testJob("broadcast")
	job.osu, job.root = true, root
	errs := inWorld(t, 3, func(comm *allcast.Comm) error {
		b, err := newPerfBench(t.Context(), comm)
		if err != nil {
			return err
		}
		for _, c := range []struct {
			osu  bool
			want float64
		}{{true, 2}, {false, 9}} {
			job := *job
			job.osu = c.osu
			made := &tally{times: []int64{int64(comm.Rank()) * 1000}}
			if comm.Rank() == root {
				made.times[0] = 9000
			}
			r, err := b.gather(t.Context(), &perfCase{perfJob: &job, rounds: 1}, made)
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
