package paper

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/allcast/allcast/internal/figure"
)

// pairVerdict compares the runs with the formula. The text says what was found.
func pairVerdict(runs []pairRun) (v Verdict, worst float64, text string, err error) {
	v = Hit
	var found []string
	for _, r := range runs {
		if r.Pair != "mcast+inc" {
			continue
		}
		_, exact, err := modelSpeedup(r.Ranks)
		if err != nil {
			return Miss, 0, "", err
		}
		off := math.Abs(r.Speedup/r.Formula() - 1)
		worst = max(worst, off)
		if !exact || off > pairTolerance {
			v = Miss
		}
		found = append(found, fmt.Sprintf("%.3f of %.3f for %d ranks", r.Speedup, r.Formula(), r.Ranks))
	}
	return v, worst, strings.Join(found, ", "), nil
}

const pairCommand = "allcast sim allgather+reduce-scatter --topology star:16 --algo mcast+inc,ring+ring " +
	"--bytes 1M --rate 56gbit"

func reducedPairs(e *Env) string {
	if e.Quick {
		return "Quick: 256 KiB per rank instead of 1 MiB, and up to 64 ranks instead of 188."
	}
	return ""
}

func concurrentPair(ctx context.Context, e *Env) (*Outcome, error) {
	runs, err := pairRuns(ctx, e)
	if err != nil {
		return nil, err
	}
	v, worst, text, err := pairVerdict(runs)
	if err != nil {
		return nil, err
	}
	o := &Outcome{
		Verdict: v, Reason: reducedPairs(e), Command: pairCommand,
		Ours: fmt.Sprintf("The model gives the formula exactly. The simulator gives %s: at most %.1f %% off.",
			text, 100*worst),
		Tables: []Table{pairTable(runs)},
	}
	return o, o.addPairLab(ctx, e)
}

func pairTable(runs []pairRun) Table {
	t := Table{
		Name: "c2-pairs", Title: "Allgather and Reduce-Scatter at once, simulated",
		Columns: []string{
			"ranks", "pair", "bytes per rank", "time, us", "over ring+ring", "2 - 2/P",
			"Allgather sent, blocks", "Reduce-Scatter sent, blocks", "Allgather received, blocks",
			"Reduce-Scatter received, blocks",
		},
	}
	for _, r := range runs {
		t.Rows = append(t.Rows, []any{
			r.Ranks, r.Pair, r.Bytes, r.TimeUS, r.Speedup, r.Formula(),
			r.SentBlocks(0), r.SentBlocks(1), r.ReceivedBlocks(0), r.ReceivedBlocks(1),
		})
	}
	return t
}

// addPairLab adds times of real packets in a lab.
func (o *Outcome) addPairLab(ctx context.Context, e *Env) error {
	if !e.Root {
		o.LeftOut = append(o.LeftOut, "lab: needs root")
		return nil
	}
	runs, err := labPairs(ctx, e)
	if err != nil {
		return err
	}
	o.Measured = true
	t := Table{
		Name: "appb-lab", Title: "in the lab, on " + labPairTopology + " at " + labRate,
		Columns: []string{"pair", "bytes per rank", "least time of 5, us", "over ring+ring", "2 - 2/P"},
	}
	for _, r := range runs {
		t.Rows = append(t.Rows, []any{r.Algo, r.Bytes, r.Time.Min, runs[0].Time.Min / r.Time.Min, 2 - 2/float64(r.Ranks)})
		if r.Algo == "mcast+inc" {
			o.Ours += fmt.Sprintf(" In the lab, %d ranks: %.2f of %.2f.",
				r.Ranks, runs[0].Time.Min/r.Time.Min, 2-2/float64(r.Ranks))
		}
	}
	o.Tables = append(o.Tables, t)
	return nil
}

// boundary shows what crosses the boundary of a node, with the most ranks that were simulated.
func boundary(ctx context.Context, e *Env) (*Outcome, error) {
	runs, err := pairRuns(ctx, e)
	if err != nil {
		return nil, err
	}
	v, _, _, err := pairVerdict(runs)
	if err != nil {
		return nil, err
	}
	ranks := runs[len(runs)-1].Ranks
	names := []string{"Allgather, sent", "Allgather, received", "Reduce-Scatter, sent", "Reduce-Scatter, received"}
	f := figure.Figure{
		Title: fmt.Sprintf("Data at the node boundary, %d ranks", ranks),
		X:     figure.Axis{Label: "collective and direction", Names: names},
		Y:     figure.Axis{Label: "share of what the direction carries"},
	}
	t := Table{
		Name: "fig3-boundary", Title: "share of one direction of the busiest rank's link, simulated and by the model",
		Columns: []string{"pair", "ranks", "collective and direction", "simulated", "model"},
	}
	p := float64(ranks)
	want := map[string][]float64{"ring+ring": {0.5, 0.5, 0.5, 0.5}, "mcast+inc": {1 / p, 1 - 1/p, 1 - 1/p, 1 / p}}
	for _, r := range runs {
		if r.Ranks != ranks || want[r.Pair] == nil {
			continue
		}
		sent, received := r.SentBlocks(0)+r.SentBlocks(1), r.ReceivedBlocks(0)+r.ReceivedBlocks(1)
		shares := []float64{
			r.SentBlocks(0) / sent, r.ReceivedBlocks(0) / received, r.SentBlocks(1) / sent, r.ReceivedBlocks(1) / received,
		}
		ours, paper := figure.Series{Name: r.Pair, Style: figure.Bars}, figure.Series{
			Name: r.Pair + ", paper", Style: figure.Points, Paper: true,
		}
		for i, s := range shares {
			ours.Data = append(ours.Data, figure.Point{X: float64(i), Y: s})
			paper.Data = append(paper.Data, figure.Point{X: float64(i), Y: want[r.Pair][i]})
			t.Rows = append(t.Rows, []any{r.Pair, ranks, names[i], s, want[r.Pair][i]})
			if math.Abs(s/want[r.Pair][i]-1) > pairTolerance {
				v = Miss
			}
		}
		f.Series = append(f.Series, ours, paper)
	}
	return &Outcome{
		Verdict: v, Reason: reducedPairs(e), Command: pairCommand,
		Ours: fmt.Sprintf("With %d ranks, the busiest rank's shares are those of the model: one half each for two "+
			"rings, 1/P and 1 - 1/P for multicast and in-network reduction.", ranks),
		Tables: []Table{t}, Figures: []NamedFigure{{"fig3-boundary", f}},
	}, nil
}

// speedupByRanks shows the speedup of Appendix B over P.
func speedupByRanks(ctx context.Context, e *Env) (*Outcome, error) {
	runs, err := pairRuns(ctx, e)
	if err != nil {
		return nil, err
	}
	v, worst, text, err := pairVerdict(runs)
	if err != nil {
		return nil, err
	}
	formula := figure.Series{Name: "2 - 2/P (paper)", Style: figure.Points, Paper: true}
	modelled := figure.Series{Name: "model", Style: figure.Line}
	simulated := figure.Series{Name: "simulator", Style: figure.Line}
	for p := 2; p <= 256; p *= 2 {
		s, _, err := modelSpeedup(p)
		if err != nil {
			return nil, err
		}
		modelled.Data = append(modelled.Data, figure.Point{X: float64(p), Y: s.Speedup})
		formula.Data = append(formula.Data, figure.Point{X: float64(p), Y: 2 - 2/float64(p)})
	}
	for _, r := range runs {
		if r.Pair == "mcast+inc" {
			simulated.Data = append(simulated.Data, figure.Point{X: float64(r.Ranks), Y: r.Speedup})
		}
	}
	o := &Outcome{
		Verdict: v, Reason: reducedPairs(e), Command: pairCommand,
		Ours:   fmt.Sprintf("Simulated speedup: %s; at most %.1f %% off. The model is exact.", text, 100*worst),
		Tables: []Table{pairTable(runs)},
	}
	o.Tables[0].Name = "appb-speedup"
	if err := o.addPairLab(ctx, e); err != nil {
		return nil, err
	}
	series := []figure.Series{formula, modelled, simulated}
	if len(o.Tables) > 1 {
		runs, err := labPairs(ctx, e)
		if err != nil {
			return nil, err
		}
		last := runs[len(runs)-1]
		series = append(series, figure.Series{Name: "lab", Style: figure.Points, Data: []figure.Point{
			{X: float64(last.Ranks), Y: runs[0].Time.Min / last.Time.Min},
		}})
	}
	o.Figures = []NamedFigure{{"appb-speedup", figure.Figure{
		Title:  "Speedup of multicast + in-network reduction over two rings",
		X:      figure.Axis{Label: "ranks", Log: 2},
		Y:      figure.Axis{Label: "times as fast"},
		Series: series,
	}}}
	return o, nil
}
