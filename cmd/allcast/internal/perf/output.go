package perf

import (
	"fmt"
	"slices"
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
	bus  map[string][]float64 // bus bandwidths by algorithm, for the averages
}

var columns = []struct {
	name  string
	width int
	only  func(*job) bool // jobs that have the column; nil for all
}{
	{"bytes", 11, nil},
	{"algo", 25, nil},
	{"avg_us", 11, nil},
	{"p50_us", 11, nil},
	{"p99_us", 11, nil},
	{"algbw", 8, nil},
	{"busbw", 8, nil},
	{"sent", 11, nil},
	{"mcast", 11, nil},
	{"repaired", 10, nil},
	{"dropped", 8, nil},
	{"wrong", 6, nil},
	{"overlap%", 9, func(j *job) bool { return j.Overlap }},
	{"in_p50_us", 11, func(j *job) bool { return j.both }},
	{"in_algbw", 8, func(j *job) bool { return j.both }},
	{"in_busbw", 8, func(j *job) bool { return j.both }},
	{"in_wrong", 8, func(j *job) bool { return j.both }},
	{"chains", 6, func(j *job) bool { return multicasts(bench.Find(j.Op), j.algos) }},
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
		fmt.Sprintf("# bytes: N, %s.", o.job.meaning),
		fmt.Sprintf("# Times are of the slowest %s, after a barrier; algbw and busbw, in GB/s, are of the median.", slowest),
		"# sent, mcast: bytes that the busiest rank handed to the network per operation, our headers included.",
		"# repaired and wrong bytes, dropped chunks: summed over ranks and iterations.",
	}
	if multicasts(bench.Find(o.job.Op), o.job.algos) {
		text = append(text, "# chains: ranks that multicast at once; 0 without multicast.")
	}
	if o.job.both {
		text = append(text, "# in_: measured in place; the other columns are out of place.")
	}
	var names []any
	for _, c := range columns {
		names = append(names, c.name)
	}
	return o.Print(strings.Join(text, "\n") + "\n" + o.line(names...))
}

func (o *output) result(r *bench.Result) error {
	if o.comm.Rank() != 0 {
		return nil
	}
	place := bench.Outcome{}
	o.bus[r.Requested] = append(o.bus[r.Requested], r.BusBW)
	if r.InPlace != nil {
		place = *r.InPlace
		o.bus[r.Requested] = append(o.bus[r.Requested], place.BusBW)
	}
	if o.JSON {
		return o.PrintJSON(r)
	}
	algo := r.Algo
	if r.Requested != r.Algo {
		algo += " (" + r.Requested + ")"
	}
	return o.Print(o.line(r.Bytes, algo, r.Time.Avg, r.Time.P50, r.Time.P99, r.AlgBW, r.BusBW,
		r.SentBytes, r.McastBytes, r.RepairedBytes, r.Dropped, r.Wrong, value(r.Overlap, 0),
		place.Time.P50, place.AlgBW, place.BusBW, place.Wrong, r.Chains))
}

// averages ends the table with the average bus bandwidth of each algorithm.
func (o *output) averages() error {
	if len(o.bus) == 0 || o.JSON || o.job.Op == "barrier" {
		return nil
	}
	var list []string
	for _, algo := range o.job.algos {
		sum, all := 0., o.bus[algo]
		for _, bw := range all {
			sum += bw
		}
		if len(all) > 0 {
			list = append(list, fmt.Sprintf("%s %.3f GB/s", algo, sum/float64(len(all))))
		}
	}
	return o.Print("# Average bus bandwidth: " + strings.Join(slices.Compact(list), ", ") + "\n")
}

func (o *output) line(cells ...any) string {
	var s strings.Builder
	for i, c := range columns {
		if c.only != nil && !c.only(o.job) {
			continue
		}
		width := c.width
		if c.name == "algo" && o.job.Op == bench.Pair {
			width += 20 // recursive-doubling+recursive-halving (auto)
		}
		fmt.Fprintf(&s, "%*s ", width, cli.Cell(cells[i]))
	}
	return strings.TrimRight(s.String(), " ") + "\n"
}
