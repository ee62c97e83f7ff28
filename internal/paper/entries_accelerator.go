package paper

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/allcast/allcast/internal/figure"
	"github.com/allcast/allcast/internal/model/dpa"
)

// acceleratorEntries are the entries about the receive path.
var acceleratorEntries = []Entry{
	{ID: "fig5", Quick: 5 * time.Second, Full: 15 * time.Second, Alone: true, Run: figure5},
	{ID: "C15", Quick: 5 * time.Second, Full: 15 * time.Second, Alone: true, Run: figure5},
	{ID: "table1", Quick: time.Second, Full: time.Second, Run: tableI},
	{ID: "C11", Quick: time.Second, Full: time.Second, Run: tableI},
	{ID: "fig13", Quick: 6 * time.Second, Full: 6 * time.Second, Run: figure13},
	{ID: "C12", Quick: 6 * time.Second, Full: 6 * time.Second, Run: claimC12},
	{ID: "fig14", Quick: 3 * time.Second, Full: 3 * time.Second, Run: figure14},
	{ID: "fig15", Quick: time.Second, Full: time.Second, Run: figure15},
	{ID: "C13", Quick: time.Second, Full: time.Second, Run: figure15},
	{ID: "fig16", Quick: 6 * time.Second, Full: 6 * time.Second, Run: figure16},
	{ID: "C14", Quick: 10 * time.Second, Full: 10 * time.Second, Run: claimC14},
}

const modelCommand = "allcast model dpa --table"

// study computes a comparison of the model with the paper once per run.
func study(e *Env, name string, compute func() *dpa.Table) (*dpa.Table, error) {
	return cached(e, "accelerator "+name, func() (*dpa.Table, error) { return compute(), nil })
}

// acceleratorTable converts a comparison to a table of an entry.
func acceleratorTable(name string, t *dpa.Table) Table {
	out := Table{Name: name, Title: t.Title, Columns: t.Columns}
	for i, values := range t.Values {
		row := make([]any, len(values))
		for j, v := range values {
			switch v.(type) {
			case int, int64, float64, string:
				row[j] = v
			default:
				row[j] = t.Rows[i][j]
			}
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}

// number returns a numeric cell of a comparison; ok is false for text.
func number(v any) (x float64, ok bool) {
	switch v := v.(type) {
	case int:
		return float64(v), true
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// cell returns the value in the row that starts with a key, and in a named column.
func cell(t *dpa.Table, key any, column string) float64 {
	for _, row := range t.Values {
		if row[0] == key {
			x, _ := number(row[slices.Index(t.Columns, column)])
			return x
		}
	}
	return math.NaN()
}

// curve plots a column of a comparison against the first one.
func curve(t *dpa.Table, column string) figure.Series {
	at := slices.Index(t.Columns, column)
	s := figure.Series{Name: column, Style: figure.Line}
	for _, row := range t.Values {
		x, ok := number(row[0])
		y, also := number(row[at])
		if ok && also {
			s.Data = append(s.Data, figure.Point{X: x, Y: y})
		}
	}
	return s
}

func curves(t *dpa.Table, columns ...string) []figure.Series {
	var all []figure.Series
	for _, c := range columns {
		all = append(all, curve(t, c))
	}
	return all
}

// bytesOfKiB turns KiB on the X axis into bytes.
func bytesOfKiB(all []figure.Series) []figure.Series {
	for _, s := range all {
		for i := range s.Data {
			s.Data[i].X *= 1 << 10
		}
	}
	return all
}

// saidBy is a series of the paper's points.
func saidBy(id, name string) figure.Series { return paperPoints(id, name, figure.Points) }

// verdictIf is the verdict of a claim that holds or does not.
func verdictIf(holds bool) Verdict {
	if holds {
		return Hit
	}
	return Miss
}

// tableI is Table I and claim C11.
func tableI(_ context.Context, e *Env) (*Outcome, error) {
	t, err := study(e, "table1", dpa.CompareTableI)
	if err != nil {
		return nil, err
	}
	holds := true
	bars := figure.Series{Name: "model", Style: figure.Bars}
	for i, m := range dpa.TableI {
		throughput, model := cell(t, m.Transport, "GiB/s, model"), cell(t, m.Transport, "cycles, model")
		tolerance := map[dpa.Transport]float64{dpa.UC: 0.05, dpa.UD: 0.01}[m.Transport]
		holds = holds && model == float64(m.Cycles) && math.Abs(throughput/m.Throughput-1) <= tolerance
		bars.Data = append(bars.Data, figure.Point{X: float64(i), Y: throughput})
	}
	if !holds {
		return nil, errors.New("the model of the accelerator does not have the numbers that it was calibrated on")
	}
	return &Outcome{
		Verdict: CannotShow,
		Reason: "It needs the accelerator. The model is calibrated on this table, so it is no prediction. " +
			"The columns of the table disagree: at " +
			"1.8 GHz, 598 cycles per chunk are 11.5 GiB/s, and 1084 are 6.3. The authors' benchmark measures throughput " +
			"and cycles with different builds.",
		Ours: fmt.Sprintf("The model has the cycles and instructions of the table, and %.1f GiB/s (UC) and %.1f (UD).",
			cell(t, dpa.UC, "GiB/s, model"), cell(t, dpa.UD, "GiB/s, model")),
		Command: "allcast model dpa --transport uc,ud --threads 1",
		Tables:  []Table{acceleratorTable("one-thread", t)},
		Figures: []NamedFigure{{Name: "one-thread", Figure: figure.Figure{
			Title: "One accelerator thread", X: figure.Axis{Label: "datapath", Names: []string{"UC", "UD"}},
			Y: figure.Axis{Label: "throughput, GiB/s"}, Series: []figure.Series{bars, saidBy("table1", "throughput, GiB/s")},
		}}},
	}, nil
}

// figure14 is the throughput by size of the buffer.
func figure14(_ context.Context, e *Env) (*Outcome, error) {
	t, err := study(e, "fig14", dpa.CompareFigure14)
	if err != nil {
		return nil, err
	}
	const paperBuffer = int64(8 << 10) // KiB
	at := func(column string) float64 { return cell(t, paperBuffer, column) }
	share := func(column string) float64 { return at(column) * (1 << 30) * 8 / 200e9 }
	near := func(column string, paper float64) bool { return math.Abs(at(column)/paper-1) <= 0.05 }
	f := figure.Figure{
		Title: "Throughput by size of the buffer, chunks of 4 KiB", X: figure.Axis{Label: "buffer, bytes", Log: 2},
		Y: figure.Axis{Label: "throughput, GiB/s"},
		Series: append(bytesOfKiB(curves(t, t.Columns[1:]...)),
			saidBy("fig14", "UC, 1 thread"), saidBy("fig14", "UD, 1 thread")),
	}
	return &Outcome{
		Verdict: verdictIf(share("UC, 16 threads") >= 0.95 && share("UD, 16 threads") >= 0.95 &&
			near("UC, 1 thread", 11.9) && near("UD, 1 thread", 5.2)),
		Ours: fmt.Sprintf("With 8 MiB, 16 threads reach %.0f %% (UC) and %.0f %% (UD) of 200 Gbit/s, and one thread "+
			"%.1f and %.1f GiB/s. Smaller buffers take longer per byte, because threads have to start and to report the end.",
			100*share("UC, 16 threads"), 100*share("UD, 16 threads"), at("UC, 1 thread"), at("UD, 1 thread")),
		Reason:  "A model, with the sender of the authors' benchmark. The paper's text has the points of one thread only.",
		Command: modelCommand,
		Tables:  []Table{acceleratorTable("buffers", t)},
		Figures: []NamedFigure{{Name: "buffers", Figure: f}},
	}, nil
}

// figure15 is Figure 15 and claim C13.
func figure15(_ context.Context, e *Env) (*Outcome, error) {
	t, err := study(e, "fig15", dpa.CompareFigure15)
	if err != nil {
		return nil, err
	}
	one, needs := curve(t, "1 thread").Data, curve(t, "needs").Data
	holds := needs[len(needs)-1].Y < needs[0].Y
	for i := 1; i < len(needs); i++ {
		holds = holds && needs[i].Y <= needs[i-1].Y && one[i].Y > one[i-1].Y
	}
	axis := figure.Axis{Label: "chunk, bytes", Log: 2}
	return &Outcome{
		Verdict: verdictIf(holds),
		Ours: fmt.Sprintf("In the model, UC needs %.0f threads with chunks of 4 KiB, %.0f with 8 KiB and %.0f with 64 KiB.",
			needs[0].Y, needs[1].Y, needs[len(needs)-1].Y),
		Reason:  "A model, with the sender of the authors' benchmark. The paper's text has no point of this figure.",
		Command: modelCommand,
		Tables:  []Table{acceleratorTable("chunks", t)},
		Figures: []NamedFigure{
			{Name: "chunks", Figure: figure.Figure{
				Title: "UC with chunks of several packets, 8 MiB", X: axis, Y: figure.Axis{Label: "throughput, GiB/s"},
				Series: bytesOfKiB(curves(t, "1 thread", "2 threads", "4 threads", "16 threads")),
			}},
			{Name: "chunks-threads", Figure: figure.Figure{
				Title: "Threads for the full throughput, UC", X: axis, Y: figure.Axis{Label: "threads"},
				Series: bytesOfKiB(curves(t, "needs", "needs, ideal sender", "needs, linear")),
			}},
		},
	}, nil
}
