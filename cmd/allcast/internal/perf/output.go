package perf

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/cmd/allcast/internal/bench"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
)

// output prints on rank 0 each result as soon as it is there, because a sweep takes a while.
type output struct {
	*cli.Env
	job  *job
	comm *allcast.Comm
}

var columns = []struct {
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

func (o *output) width() int {
	if o.job.Overlap {
		return len(columns)
	}
	return len(columns) - 1
}

func (o *output) header() error {
	if o.comm.Rank() != 0 || o.JSON {
		return nil
	}
	verified := "each verified on all ranks"
	if !o.job.Check {
		verified = "not verified"
	}
	slowest := "rank"
	if o.job.Timed() == "leaves" {
		slowest = "leaf"
	}
	text := []string{
		fmt.Sprintf("# %v; %d ranks, fabric %s, datapath %v; %s, %s.",
			o.job, o.comm.Size(), o.comm.Fabric(), o.comm.Datapath(), o.job.Iterations(), verified),
		fmt.Sprintf("# %s. Times are of the slowest %s, after a barrier; algbw and busbw as in nccl-tests, 1e9 bytes/s.",
			cmp.Or(meanings[o.job.Op], "bytes is N of the paper: what one rank sends"), slowest),
		"# sent, mcast: bytes that the busiest rank handed to the network per operation, our headers included.",
		"# repaired and wrong bytes, dropped chunks: summed over ranks and iterations.",
	}
	var names []any
	for _, c := range columns[:o.width()] {
		names = append(names, c.name)
	}
	return o.Print(strings.Join(text, "\n") + "\n" + o.line(names...))
}

func (o *output) result(r *bench.Result) error {
	switch {
	case o.comm.Rank() != 0:
		return nil
	case o.JSON:
		return o.PrintJSON(r)
	}
	algo := r.Algo
	if r.Requested != r.Algo {
		algo += " (" + r.Requested + ")"
	}
	overlap := 0.
	if r.Overlap != nil {
		overlap = *r.Overlap
	}
	return o.Print(o.line(r.Bytes, algo, r.Time.Avg, r.Time.P50, r.Time.P99, r.AlgBW, r.BusBW,
		r.SentBytes, r.McastBytes, r.RepairedBytes, r.Dropped, r.Wrong, overlap))
}

func (o *output) line(cells ...any) string {
	var s strings.Builder
	for i, c := range columns[:o.width()] {
		width := c.width
		if c.name == "algo" && o.job.Op == bench.Pair {
			width += 20 // recursive-doubling+recursive-halving (auto)
		}
		fmt.Fprintf(&s, "%*s ", width, cli.Cell(cells[i]))
	}
	return strings.TrimRight(s.String(), " ") + "\n"
}
