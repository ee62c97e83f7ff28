package main

import (
	"fmt"

	"github.com/allcast/allcast/internal/sim"
)

// stepLine is a result beside the first one.
type stepLine struct {
	*sim.FSDPResult
	Speedup float64 `json:"speedup"`
}

func (a *app) printSteps(results []*sim.FSDPResult) error {
	var lines []stepLine
	for _, r := range results {
		line := stepLine{FSDPResult: r}
		if r.StepUS > 0 {
			line.Speedup = results[0].StepUS / r.StepUS
		}
		lines = append(lines, line)
		if a.json {
			if err := a.printJSON(line); err != nil {
				return err
			}
		}
	}
	if a.json {
		return nil
	}
	return stepTable(lines).print(a.stdout)
}

// stepTable is a row a field, under its JSON name, and a column a pair.
func stepTable(lines []stepLine) *table {
	t := &table{left: true}
	r := lines[0]
	t.note("One FSDP step on %s (%d ranks), simulated, seed %d: %d layers of %d bytes, a shard is %d, prefetch %d.",
		r.Topology, r.Nodes, r.Seed, r.Layers, r.LayerBytes, r.ShardBytes, r.Prefetch)
	t.note("Times are us of virtual time, on the rank that ended last. --html FILE draws the timeline, --json lists it.")
	for _, f := range stepFields {
		row := []any{f.name}
		for _, l := range lines {
			row = append(row, f.value(l))
		}
		t.row(append(row, f.meaning)...)
	}
	return t
}

var stepFields = []struct {
	name    string
	value   func(stepLine) any
	meaning string
}{
	{"algo", func(l stepLine) any { return l.Algo }, "allgather + reduce-scatter"},
	{"step_us", func(l stepLine) any { return l.StepUS }, "first rank's start to last rank's end"},
	{"speedup", func(l stepLine) any { return l.Speedup }, "of the step, over the first pair"},
	{"compute_us", func(l stepLine) any { return l.ComputeUS }, ""},
	{"bubble_pct", func(l stepLine) any { return l.BubblePct }, "of the step nothing was computed"},
	{"exposed_allgather_us", func(l stepLine) any { return l.ExposedAllgatherUS }, "waiting for parameters"},
	{"exposed_reduce_scatter_us", func(l stepLine) any { return l.ExposedReduceScatterUS }, "after the last compute"},
	{"backward_us", func(l stepLine) any { return l.BackwardUS }, "from the end of forward"},
	{"allgather_us", func(l stepLine) any { return l.AllgatherUS }, "with one under way"},
	{"reduce_scatter_us", func(l stepLine) any { return l.ReduceScatterUS }, "with one under way"},
	{"sent_bytes", func(l stepLine) any { return l.SentBytes }, "by the busiest rank, headers included"},
	{"received_bytes", func(l stepLine) any { return l.ReceivedBytes }, "likewise"},
	{"chunk", func(l stepLine) any { return l.Chunk }, "payload of a packet"},
	{"repaired_chunks", func(l stepLine) any { return l.RepairedChunks }, "fetched from the left neighbour"},
	{"collectives", func(l stepLine) any { return l.Collectives }, "completed"},
	{"verified", func(l stepLine) any { return yesNo(l.Verified) }, "every result of every collective on every rank"},
	{"events", func(l stepLine) any { return l.Events }, "simulated"},
	{"wall_ms", func(l stepLine) any { return l.WallMS }, "real time"},
}

// ms writes microseconds for people, with a fixed point so that columns compare.
func ms(us float64) string { return fmt.Sprintf("%.2f ms", us/1e3) }
