//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// spread is the distribution of a value over the rounds.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func newSpread(v []float64) spread {
	slices.Sort(v)
	return spread{Median: (v[len(v)/2] + v[(len(v)-1)/2]) / 2, Min: v[0], Max: v[len(v)-1]}
}

// result compares auto with the best fixed choice at one size.
type result struct {
	Network   string  `json:"network"`
	Operation string  `json:"op"`
	Bytes     int64   `json:"bytes"`
	Rounds    int     `json:"rounds"`
	Took      string  `json:"auto"`     // choices that auto took, with the number of jobs
	Best      string  `json:"best"`     // fixed choice with the largest ratio
	Ratio     spread  `json:"ratio"`    // of the time of auto to that of best, of the same round
	Time      spread  `json:"auto_us"`  // of auto
	Fixed     float64 `json:"fixed_us"` // median time of best
	Kept      bool    `json:"kept"`     // whether the median ratio keeps the promise, or auto took best in all jobs
}

// compare joins the rounds of all jobs.
func compare(network string, jobs []*measurement) (r result, join spread) {
	first := jobs[0]
	r = result{Network: network, Operation: first.Operation, Bytes: first.Bytes}
	took := map[string]int{}
	var auto, joins []float64
	for _, m := range jobs {
		took[m.Took.String()]++
		joins = append(joins, float64(m.Join))
		for _, ns := range m.Times[0] {
			auto = append(auto, float64(ns)/1e3)
		}
	}
	r.Rounds, r.Time = len(auto), newSpread(slices.Clone(auto))
	for name, n := range took {
		r.Took = strings.TrimPrefix(r.Took+fmt.Sprintf("; %s x%d", name, n), "; ")
	}
	for k := range first.Choices[1:] {
		var fixed, ratios []float64
		for _, m := range jobs {
			for round, ns := range m.Times[k+1] {
				fixed = append(fixed, float64(ns)/1e3)
				ratios = append(ratios, float64(m.Times[0][round])/float64(ns))
			}
		}
		if 2*len(fixed) < len(auto) {
			continue // too slow in most jobs
		}
		if s := newSpread(ratios); s.Median > r.Ratio.Median {
			r.Ratio, r.Best, r.Fixed = s, first.Choices[k+1].String(), newSpread(fixed).Median
		}
	}
	r.Kept = r.Ratio.Median <= promise || took[r.Best] == len(jobs) // the rest is noise
	return r, newSpread(joins)
}

// report prints the results of a network, and returns the number of those that break the promise.
func report(out io.Writer, asJSON bool, network string, jobs [][]measurement) (broken int, err error) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	e := json.NewEncoder(out)
	for at := range jobs[0] {
		same := sameCase(jobs, &jobs[0][at])
		if len(same) < len(jobs) {
			continue // jobs may differ in the first size that is too large
		}
		r, join := compare(network, same)
		if at == 0 && !asJSON {
			_, _ = fmt.Fprintf(t, "%s; %d rounds; Join takes %v\nop\tbytes\tauto took\tus\tbest fixed\tus\tratio\n", network,
				r.Rounds, time.Duration(join.Median).Round(time.Millisecond))
		}
		mark := ""
		switch {
		case !r.Kept:
			broken++
			mark = " too slow"
		case r.Ratio.Median > promise:
			mark = " same choice"
		}
		if asJSON {
			err = e.Encode(&r)
		} else {
			_, err = fmt.Fprintf(t, "%s\t%d\t%s\t%.0f\t%s\t%.0f\t%.2f (%.2f-%.2f)%s\n", r.Operation, r.Bytes, r.Took,
				r.Time.Median, r.Best, r.Fixed, r.Ratio.Median, r.Ratio.Min, r.Ratio.Max, mark)
		}
		if err != nil {
			return broken, err
		}
	}
	return broken, t.Flush()
}

// sameCase returns the measurements of all jobs with the operation and the size of m.
func sameCase(jobs [][]measurement, m *measurement) (same []*measurement) {
	for _, job := range jobs {
		for i := range job {
			if job[i].Operation == m.Operation && job[i].Bytes == m.Bytes {
				same = append(same, &job[i])
			}
		}
	}
	return same
}
