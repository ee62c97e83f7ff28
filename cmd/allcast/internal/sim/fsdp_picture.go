package sim

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strconv"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/sim"
)

// stepPage is a single file without references to others, so that the page can be opened anywhere.
//
//go:embed fsdp.html.tmpl
var stepPage string

var stepTemplate = template.Must(template.New("fsdp").Parse(stepPage))

// Layout of a timeline, in units of the drawing: pixels on a wide screen.
const (
	drawingWidth = 1160.0
	laneLeft     = 112.0
	laneWidth    = drawingWidth - laneLeft - 24
	laneTop      = 8.0
	laneHeight   = 28.0
	laneGap      = 6.0
	labelWidth   = 8.0 // of one digit with its margin
)

type stepDrawing struct {
	Title  string
	Notes  string
	Rows   []stepRow
	Panels []stepPanel
	Width  float64
}

type stepRow struct {
	Algo, Step, Compute, Bubble, Speedup, Sent, Received, Verified string
}

type stepPanel struct {
	Algo, Summary string
	Height        float64
	AxisY, TextY  float64
	Lanes         []stepLane
	Boxes         []stepBox
	Ticks         []stepTick
	EndX, EndY    float64
}

type stepLane struct {
	Name                   string
	X, Y, Width, H, LabelY float64
}

type stepBox struct {
	Class, Title, Label       string
	X, Y, Width, H, TextX, TY float64
}

type stepTick struct {
	X     float64
	Label string
}

// stepLanes are the lanes of a timeline, from the top.
var stepLanes = []struct{ kind, name string }{
	{"compute", "compute"}, {"allgather", "Allgather"}, {"reduce-scatter", "Reduce-Scatter"},
}

// drawSteps writes the page. All timelines have the same scale.
func drawSteps(w io.Writer, results []*sim.FSDPResult) error {
	r := results[0]
	d := stepDrawing{
		Title: fmt.Sprintf("One FSDP training step on %s", r.Topology),
		Notes: fmt.Sprintf("%d ranks, %d layers of %.4g MB, prefetch %d, packets of %d bytes, seed %d. "+
			"Simulated; the timelines are those of rank 0.",
			r.Nodes, r.Layers, float64(r.LayerBytes)/1e6, r.Prefetch, r.Chunk, r.Seed),
		Width: drawingWidth,
	}
	longest := 0.0
	for _, r := range results {
		for _, s := range r.Timeline {
			longest = max(longest, s.End)
		}
	}
	for _, r := range results {
		speedup := "-"
		if r.StepUS > 0 {
			speedup = fmt.Sprintf("%.2f", results[0].StepUS/r.StepUS)
		}
		d.Rows = append(d.Rows, stepRow{
			Algo: r.Algo, Step: ms(r.StepUS), Compute: ms(r.ComputeUS),
			Bubble: fmt.Sprintf("%.1f %%", r.BubblePct), Speedup: speedup,
			Sent: volume(r.SentBytes), Received: volume(r.ReceivedBytes), Verified: cli.YesNo(r.Verified),
		})
		d.Panels = append(d.Panels, stepTimeline(r, longest))
	}
	if err := stepTemplate.Execute(w, d); err != nil {
		return fmt.Errorf("drawing the timeline: %w", err)
	}
	return nil
}

func stepTimeline(r *sim.FSDPResult, longest float64) stepPanel {
	x := func(us float64) float64 { return laneLeft + laneWidth*us/max(longest, 1e-9) }
	y := func(lane int) float64 { return laneTop + float64(lane)*(laneHeight+laneGap) }
	p := stepPanel{
		Algo:    r.Algo,
		Summary: fmt.Sprintf("%s, %.1f %% of it without computing", ms(r.StepUS), r.BubblePct),
		AxisY:   y(len(stepLanes)),
	}
	p.TextY, p.Height = p.AxisY+16, p.AxisY+24
	for i, l := range stepLanes {
		p.Lanes = append(p.Lanes, stepLane{
			Name: l.name, X: laneLeft, Y: y(i), Width: x(r.StepUS) - laneLeft, H: laneHeight,
			LabelY: y(i) + laneHeight/2 + 4,
		})
		for _, s := range r.Timeline {
			if s.Kind == l.kind {
				p.Boxes = append(p.Boxes, newStepBox(s, x(s.Start), x(s.End), y(i), len(strconv.Itoa(r.Layers-1))))
			}
		}
	}
	p.EndX, p.EndY = x(r.StepUS), p.AxisY-laneGap
	step := tickStep(longest)
	for at := 0.0; at <= longest; at += step {
		p.Ticks = append(p.Ticks, stepTick{X: x(at), Label: strconv.FormatFloat(at/1e3, 'g', 6, 64)})
	}
	return p
}

// newStepBox draws a span. It gets a label only if the longest label of the row, with that many digits, would fit:
// labels on some boxes only would look like a pattern.
func newStepBox(s sim.Span, from, to, y float64, digits int) stepBox {
	class, pass := s.Kind, "forward"
	if s.Backward {
		pass = "backward"
	}
	if s.Kind == "compute" {
		class = pass
	}
	b := stepBox{
		Class: class, X: from, Y: y, Width: max(to-from, 0.4), H: laneHeight,
		Title: fmt.Sprintf("%s of layer %d, %s: %s to %s", s.Kind, s.Layer, pass, ms(s.Start), ms(s.End)),
		TextX: (from + to) / 2, TY: y + laneHeight/2 + 4,
	}
	if to-from >= labelWidth*float64(digits)+2 {
		b.Label = strconv.Itoa(s.Layer)
	}
	return b
}

// tickStep returns 1, 2 or 5 times a power of ten, for about ten ticks.
func tickStep(longest float64) float64 {
	if longest <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(longest/10)))
	for _, m := range []float64{1, 2, 5} {
		if longest/(m*power) <= 12 {
			return m * power
		}
	}
	return 10 * power
}

// volume formats bytes.
func volume(n int64) string {
	if n < 1e9 {
		return fmt.Sprintf("%.2f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2f GB", float64(n)/1e9)
}
