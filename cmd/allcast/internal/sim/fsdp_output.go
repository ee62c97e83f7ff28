package sim

import (
	"fmt"
	"strings"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/sim"
)

// stepLine is a result with its speed-up over the first one.
type stepLine struct {
	*sim.FSDPResult
	Speedup float64 `json:"speedup"`
}

func printSteps(e *cli.Env, results []*sim.FSDPResult) error {
	var lines []stepLine
	for _, r := range results {
		line := stepLine{FSDPResult: r}
		if r.StepUS > 0 {
			line.Speedup = results[0].StepUS / r.StepUS
		}
		lines = append(lines, line)
		if e.JSON {
			if err := e.PrintJSON(line); err != nil {
				return err
			}
		}
	}
	if e.JSON {
		return nil
	}
	return e.PrintTable(stepTable(lines))
}

// stepTable has one row per field, under its JSON name, and one column per pair.
func stepTable(lines []stepLine) *cli.Table {
	t := &cli.Table{Left: true}
	r := lines[0]
	t.Note("One FSDP step on %s (%d ranks), simulated, seed %d: %d layers of %d bytes, shards of %d, prefetch %d.",
		networkName(r.Subject), r.Nodes, r.Seed, r.Layers, r.LayerBytes, r.ShardBytes, r.Prefetch)
	t.Note("Times are us of virtual time, on the rank that ended last. --html FILE draws the timeline, --json lists it.")
	fieldRows(t, stepFields, lines, stepApplies)
	return t
}

// stepApplies reports whether a field means something in a step: only multicast repairs.
func stepApplies(name string, l stepLine) bool {
	return name != "repaired_chunks" || strings.Contains(l.Algo, "mcast") || strings.Contains(l.Algo, "inc")
}

var stepFields = []field[stepLine]{
	{"algo", func(l stepLine) any { return l.Algo }, "allgather + reduce-scatter"},
	{"step_us", func(l stepLine) any { return l.StepUS }, "first rank's start to last rank's end"},
	{"speedup", func(l stepLine) any { return l.Speedup }, "of the step, over the first pair"},
	{"compute_us", func(l stepLine) any { return l.ComputeUS }, ""},
	{"bubble_pct", func(l stepLine) any { return l.BubblePct }, "share of the step without computing"},
	{"exposed_allgather_us", func(l stepLine) any { return l.ExposedAllgatherUS }, "waiting for parameters"},
	{"exposed_reduce_scatter_us", func(l stepLine) any { return l.ExposedReduceScatterUS }, "after the last compute"},
	{"backward_us", func(l stepLine) any { return l.BackwardUS }, "from the end of forward"},
	{"allgather_us", func(l stepLine) any { return l.AllgatherUS }, "with one in progress"},
	{"reduce_scatter_us", func(l stepLine) any { return l.ReduceScatterUS }, "with one in progress"},
	{"sent_bytes", func(l stepLine) any { return l.SentBytes }, "by the busiest rank, headers included"},
	{"received_bytes", func(l stepLine) any { return l.ReceivedBytes }, "likewise"},
	{"chunk", func(l stepLine) any { return l.Chunk }, "payload of a packet"},
	{"repaired_chunks", func(l stepLine) any { return l.RepairedChunks }, "fetched from the left neighbour"},
	{"collectives", func(l stepLine) any { return l.Collectives }, "completed"},
	{"verified", func(l stepLine) any { return cli.YesNo(l.Verified) }, "every result of every collective on every rank"},
	{"events", func(l stepLine) any { return l.Events }, "simulated"},
	{"wall_ms", func(l stepLine) any { return l.WallMS }, "real time"},
}

// ms formats microseconds as milliseconds.
func ms(us float64) string { return fmt.Sprintf("%.2f ms", us/1e3) }
