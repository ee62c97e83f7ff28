package paper

import (
	"context"
	"fmt"
	"slices"

	"github.com/allcast/allcast/internal/figure"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/wire"
)

const scheduleCommand = "go test ./internal/mcast -run TestPaperAppendixA"

// scheduleOf returns the ranks that multicast, by chain and step, from the geometry that ranks use. Each chain has a
// stream of its own, in which ranks send in the order of their PSNs.
func scheduleOf(ranks, chains int) ([][]int, error) {
	counts := slices.Repeat([]int64{1}, ranks)
	layout, err := wire.NewLayout(0)
	if err != nil {
		return nil, err
	}
	rounds, err := mcast.Plan(mcast.Shape{
		Kind: wire.Allgather, Counts: counts, Chunk: 1, Chains: chains, Subgroups: 1, Streams: chains,
	}, layout)
	if err != nil {
		return nil, err
	}
	g := rounds[0]
	schedule := make([][]int, g.Streams())
	for chain := range schedule {
		for step := range g.PSNs(chain) {
			schedule[chain] = append(schedule[chain], g.Owner(chain, step))
		}
	}
	return schedule, nil
}

// paperSchedule is the formula of Appendix A: rank kR + i sends in step i of chain k.
func paperSchedule(ranks, chains int) [][]int {
	steps := ranks / chains
	schedule := make([][]int, chains)
	for k := range schedule {
		for i := range steps {
			schedule[k] = append(schedule[k], k*steps+i)
		}
	}
	return schedule
}

// appendixA shows one schedule as the paper writes it.
func appendixA(context.Context, *Env) (*Outcome, error) {
	const ranks, chains = 12, 3
	ours, err := scheduleOf(ranks, chains)
	if err != nil {
		return nil, err
	}
	theirs := paperSchedule(ranks, chains)
	table := Table{
		Name: "schedule", Title: "Ranks that multicast in each step, 12 ranks in 3 chains",
		Columns: []string{"step", "Allcast", "paper"},
	}
	paper := figure.Series{Name: "Appendix A", Style: figure.Points, Paper: true}
	var series []figure.Series
	for k, chain := range ours {
		s := figure.Series{Name: fmt.Sprintf("chain %d", k), Style: figure.Line}
		for i, rank := range chain {
			s.Data = append(s.Data, figure.Point{X: float64(i), Y: float64(rank)})
		}
		for i, rank := range theirs[k] {
			paper.Data = append(paper.Data, figure.Point{X: float64(i), Y: float64(rank)})
		}
		series = append(series, s)
	}
	for i := range theirs[0] {
		table.Rows = append(table.Rows, []any{i, group(ours, i), group(theirs, i)})
	}
	return &Outcome{
		Verdict: verdictIf(slices.EqualFunc(ours, theirs, slices.Equal)),
		Ours:    "The ranks of each step are those of the paper's formula.",
		Command: scheduleCommand,
		Tables:  []Table{table},
		Figures: []NamedFigure{{"schedule", figure.Figure{
			Title: "12 ranks in 3 chains", X: figure.Axis{Label: "step"}, Y: figure.Axis{Label: "rank that multicasts"},
			Series: append(series, paper),
		}}},
	}, nil
}

// group writes the active group of a step.
func group(schedule [][]int, step int) string {
	text := ""
	for _, chain := range schedule {
		if step < len(chain) {
			text += fmt.Sprintf(" P%d", chain[step])
		}
	}
	return text[min(1, len(text)):]
}

// chainSchedule compares the schedules of all sizes up to the testbed's with the formula.
func chainSchedule(_ context.Context, e *Env) (*Outcome, error) {
	maxRanks := 188
	if e.Quick {
		maxRanks = 64
	}
	const maxChains = 64 // a geometry has no more streams
	same, compared, balanced, others := 0, 0, 0, 0
	for ranks := 1; ranks <= maxRanks; ranks++ {
		for chains := 1; chains <= min(ranks, maxChains); chains++ {
			ours, err := scheduleOf(ranks, chains)
			if err != nil {
				return nil, fmt.Errorf("%d ranks, %d chains: %w", ranks, chains, err)
			}
			if ranks%chains != 0 {
				others++
				balanced += oneIf(isBalanced(ours, ranks, chains))
				continue
			}
			compared++
			same += oneIf(slices.EqualFunc(ours, paperSchedule(ranks, chains), slices.Equal))
		}
	}
	return &Outcome{
		Verdict: verdictIf(same == compared),
		Ours: fmt.Sprintf("%d of %d schedules of up to %d ranks and %d chains are the paper's. If M does not divide P, "+
			"chains differ by one rank at most: %d of %d.", same, compared, maxRanks, maxChains, balanced, others),
		Command: scheduleCommand,
		Tables: []Table{{
			Name: "schedules", Title: "Schedules of all sizes", Columns: []string{"M divides P", "schedules", "as expected"},
			Rows: [][]any{{"yes", compared, same}, {"no", others, balanced}},
		}},
	}, nil
}

// isBalanced reports whether M chains hold each rank once, and differ by one rank at most.
func isBalanced(schedule [][]int, ranks, chains int) bool {
	next := 0
	for _, chain := range schedule {
		if len(chain) < ranks/chains || len(chain) > ranks/chains+1 {
			return false
		}
		for _, rank := range chain {
			if rank != next {
				return false
			}
			next++
		}
	}
	return next == ranks && len(schedule) == chains
}

func oneIf(b bool) int {
	if b {
		return 1
	}
	return 0
}
