package main

import (
	"fmt"
	"strings"

	"github.com/allcast/allcast"
)

// perfOutput prints results as they come: a sweep takes a while.
type perfOutput struct {
	*app
	job    *perfJob
	quiet  bool
	ranks  int
	fabric string
	path   allcast.Datapath
}

var perfColumns = []struct {
	name  string
	width int
}{
	{"bytes", 11},
	{"algo", 25},
	{"avg_us", 11},
	{"p50_us", 11},
	{"p99_us", 11},
	{"algbw", 8},
	{"busbw", 8},
	{"sent", 11},
	{"mcast", 11},
	{"repaired", 10},
	{"dropped", 8},
	{"wrong", 6},
	{"overlap%", 9},
}

func (o *perfOutput) columns() int {
	if o.job.overlap {
		return len(perfColumns)
	}
	return len(perfColumns) - 1
}

func (o *perfOutput) header() error {
	if o.quiet || o.json {
		return nil
	}
	verified := "each verified on all ranks"
	if !o.job.check {
		verified = "not verified"
	}
	slowest := "rank"
	if o.job.timed() == "leaves" {
		slowest = "leaf"
	}
	text := []string{
		fmt.Sprintf("# %v; %d ranks, fabric %s, datapath %v; %s, %s.", o.job, o.ranks, o.fabric, o.path, o.job.often(), verified),
		fmt.Sprintf("# %s. Times are of the slowest %s, after a barrier; algbw and busbw as in nccl-tests, 1e9 bytes/s.", o.job.meaning(), slowest),
		"# sent, mcast: bytes that the busiest rank handed to the network per operation, our headers included.",
		"# repaired and wrong bytes, dropped chunks: summed over ranks and iterations.",
	}
	var names []any
	for _, c := range perfColumns[:o.columns()] {
		names = append(names, c.name)
	}
	return o.write(strings.Join(text, "\n") + "\n" + o.line(names...))
}

func (o *perfOutput) result(r *perfResult) error {
	switch {
	case o.quiet:
		return nil
	case o.json:
		return o.printJSON(r)
	}
	algo := r.Algo
	if r.Requested != r.Algo {
		algo += " (" + r.Requested + ")"
	}
	overlap := 0.
	if r.Overlap != nil {
		overlap = *r.Overlap
	}
	return o.write(o.line(r.Bytes, algo, r.Time.Avg, r.Time.P50, r.Time.P99, r.AlgBW, r.BusBW, r.SentBytes, r.McastBytes, r.RepairedBytes, r.Dropped, r.Wrong, overlap))
}

func (o *perfOutput) line(cells ...any) string {
	var s strings.Builder
	for i, c := range perfColumns[:o.columns()] {
		text := fmt.Sprint(cells[i])
		if f, ok := cells[i].(float64); ok {
			text = fmt.Sprintf("%.2f", f)
		}
		width := c.width
		if c.name == "algo" && o.job.op == perfPair {
			width += 20 // recursive-doubling+recursive-halving (auto)
		}
		fmt.Fprintf(&s, "%*s ", width, text)
	}
	return strings.TrimRight(s.String(), " ") + "\n"
}

func (o *perfOutput) write(text string) error {
	if _, err := o.stdout.Write([]byte(text)); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}
