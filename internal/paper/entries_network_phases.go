package paper

import (
	"context"
	"fmt"

	"github.com/allcast/allcast/internal/figure"
)

const phasesCommand = "allcast sim allgather --topology " + Testbed + " --algo mcast --bytes 64K --rate 56gbit --json"

// dataMovement is the entry of claim C7.
func dataMovement(ctx context.Context, e *Env) (*Outcome, error) {
	rows, sizes, err := phaseRuns(ctx, e)
	if err != nil {
		return nil, err
	}
	o := &Outcome{
		Verdict: Hit, Command: phasesCommand,
		Tables: []Table{{
			Name: "c7-phases", Title: "time of an Allgather by phase",
			Columns: []string{
				"nodes", "block, KiB", "time, us", "barrier, us", "multicast, us", "handshake, us", "share of data movement, %",
			},
		}},
	}
	least := 1.0 // from 16 nodes on, with blocks of 256 KiB
	for _, row := range rows {
		for i, r := range row.Results {
			p := r.Phases
			o.Tables[0].Rows = append(o.Tables[0].Rows,
				[]any{row.Nodes, sizes[i], r.TimeUS, p.Barrier, p.Multicast, p.Handshake, 100 * movement(r)})
			switch {
			case row.Nodes == 188 && sizes[i] == 64:
				o.Ours = fmt.Sprintf("On the testbed, %.1f %% of the time with blocks of 64 KiB", 100*movement(r)) + o.Ours
			case row.Nodes >= 16 && sizes[i] == 256:
				least = min(least, movement(r))
			}
		}
	}
	if o.Ours += fmt.Sprintf("; from 16 nodes on, at least %.1f %% with blocks of 256 KiB.", 100*least); least < 0.985 {
		o.Verdict = Miss
	}
	o.Reason = "It takes more nodes with smaller blocks, because the barrier costs log P messages for any size."
	if e.Quick {
		o.Reason += " Quick: blocks up to 256 KiB."
	}
	return o, nil
}

func figure10(ctx context.Context, e *Env) (*Outcome, error) {
	o, err := dataMovement(ctx, e)
	if err != nil {
		return nil, err
	}
	rows, sizes, err := phaseRuns(ctx, e)
	if err != nil {
		return nil, err
	}
	f := figure.Figure{
		Title: "Share of data movement in the time of an Allgather",
		X:     figure.Axis{Label: "nodes", Log: 2},
		Y:     figure.Axis{Label: "share of the time, %"},
	}
	for i, s := range sizes {
		line := figure.Series{Name: fmt.Sprintf("%d KiB", s), Style: figure.Line}
		for _, row := range rows {
			line.Data = append(line.Data, figure.Point{X: float64(row.Nodes), Y: 100 * movement(row.Results[i])})
		}
		f.Series = append(f.Series, line)
	}
	f.Series = append(f.Series, paperPoints("fig10", "data movement", figure.Points))
	o.Tables[0].Name = "fig10-phases"
	o.Figures = []NamedFigure{{"fig10-share", f}}
	return o, nil
}
