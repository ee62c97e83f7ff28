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

var stepTemplate = template.Must(template.New("fsdp").
	Funcs(template.FuncMap{"ms": ms, "volume": volume, "yesNo": cli.YesNo}).Parse(stepPage))

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
	Title, Notes      string
	Width, LaneHeight float64
	Panels            []stepPanel
}

// stepPanel is the timeline of one result.
type stepPanel struct {
	*sim.FSDPResult
	Speedup                      string
	Height, AxisY, TextY         float64
	LaneX, LaneWidth, EndX, EndY float64
	Lanes                        []stepLane
	Ticks                        []stepTick
}

type stepLane struct {
	Name     string
	Y, TextY float64
	Boxes    []stepBox
}

type stepBox struct {
	Class, Title, Label string
	X, Width, TextX     float64
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
		Width: drawingWidth, LaneHeight: laneHeight,
	}
	longest := 0.0
	for _, r := range results {
		for _, s := range r.Timeline {
			longest = max(longest, s.End)
		}
	}
	for _, r := range results {
		p := stepTimeline(r, longest)
		if r.StepUS > 0 {
			p.Speedup = fmt.Sprintf("%.2f", results[0].StepUS/r.StepUS)
		}
		d.Panels = append(d.Panels, p)
	}
	if err := stepTemplate.Execute(w, d); err != nil {
		return fmt.Errorf("drawing the timeline: %w", err)
	}
	return nil
}

func stepTimeline(r *sim.FSDPResult, longest float64) stepPanel {
	x := func(us float64) float64 { return laneLeft + laneWidth*us/max(longest, 1e-9) }
	y := func(lane int) float64 { return laneTop + float64(lane)*(laneHeight+laneGap) }
	axis, end := y(len(stepLanes)), x(r.StepUS)
	p := stepPanel{
		FSDPResult: r, Speedup: "-", Height: axis + 24, AxisY: axis, TextY: axis + 16,
		LaneX: laneLeft, LaneWidth: end - laneLeft, EndX: end, EndY: axis - laneGap,
	}
	for i, l := range stepLanes {
		lane := stepLane{Name: l.name, Y: y(i), TextY: y(i) + laneHeight/2 + 4}
		for _, s := range r.Timeline {
			if s.Kind == l.kind {
				lane.Boxes = append(lane.Boxes, newStepBox(s, x(s.Start), x(s.End), len(strconv.Itoa(r.Layers-1))))
			}
		}
		p.Lanes = append(p.Lanes, lane)
	}
	for at := 0.0; at <= longest; at += tickStep(longest) {
		p.Ticks = append(p.Ticks, stepTick{X: x(at), Label: strconv.FormatFloat(at/1e3, 'g', 6, 64)})
	}
	return p
}

// newStepBox draws a span. It gets a label only if the longest label of the row, with that many digits, would fit:
// labels on some boxes only would look like a pattern.
func newStepBox(s sim.Span, from, to float64, digits int) stepBox {
	class, pass := s.Kind, "forward"
	if s.Backward {
		pass = "backward"
	}
	if s.Kind == "compute" {
		class = pass
	}
	b := stepBox{
		Class: class, X: from, Width: max(to-from, 0.4), TextX: (from + to) / 2,
		Title: fmt.Sprintf("%s of layer %d, %s: %s to %s", s.Kind, s.Layer, pass, ms(s.Start), ms(s.End)),
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
