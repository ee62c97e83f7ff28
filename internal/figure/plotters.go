package figure

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	markRadius      = vg.Length(3.2)
	paperMarkRadius = vg.Length(4.6) // a ring around our own marker at the same place
	smallMarkRadius = vg.Length(2)
	manyPoints      = 30 // above it, markers are small
)

// points draws a series of style Line or Points.
type points struct {
	*Series
	look
}

// Plot implements plot.Plotter.
func (s points) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	line := make([]vg.Point, len(s.Data))
	for i, d := range s.Data {
		line[i] = vg.Point{X: x(d.X), Y: y(d.Y)}
		s.errorBar(&c, line[i].X, d, y)
	}
	if s.Style == Line {
		c.StrokeLines(s.line(), line)
	}
	for _, at := range line {
		s.mark(&c, at, s.radius())
	}
}

func (s points) radius() vg.Length {
	switch {
	case s.Paper:
		return paperMarkRadius
	case len(s.Data) > manyPoints:
		return smallMarkRadius
	}
	return markRadius
}

// errorBar draws the range of a point, if it has one.
func (l look) errorBar(c *draw.Canvas, x vg.Length, d Point, y func(float64) vg.Length) {
	if !d.ranged() {
		return
	}
	const halfCap = 4
	style := draw.LineStyle{Color: l.color, Width: 1.2}
	low, high := y(d.Low), y(d.High)
	c.StrokeLine2(style, x, low, x, high)
	c.StrokeLine2(style, x-halfCap, low, x+halfCap, low)
	c.StrokeLine2(style, x-halfCap, high, x+halfCap, high)
}

// bars draws a series of style Bars. The bars of a name stand side by side around the name.
type bars struct {
	*Series
	look
	width float64             // of a bar; the distance between two names is 1
	left  map[float64]float64 // X of a bar -> its left edge
}

// groupWidth is the part of the distance between two names that all bars of a name may take.
const groupWidth = 0.8

// arrange returns the bars of all series, in their order. All bars are as wide as those of the fullest name.
func arrange(series []Series, all []look) []bars {
	perName := make(map[float64]int)
	var grouped []bars
	for i := range series {
		if series[i].Style != Bars {
			continue
		}
		grouped = append(grouped, bars{Series: &series[i], look: all[i], left: make(map[float64]float64)})
		for _, d := range series[i].Data {
			perName[d.X]++
		}
	}
	fullest := 1
	for _, n := range perName {
		fullest = max(fullest, n)
	}
	placed := make(map[float64]int)
	for i := range grouped {
		g := &grouped[i]
		g.width = groupWidth / float64(fullest)
		for _, d := range g.Data {
			g.left[d.X] = d.X + g.width*(float64(placed[d.X])-float64(perName[d.X])/2)
			placed[d.X]++
		}
	}
	return grouped
}

// Plot implements plot.Plotter.
func (s bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	base := y(max(p.Y.Min, min(0, p.Y.Max)))
	for _, d := range s.Data {
		left := s.left[d.X]
		box := vg.Rectangle{
			Min: vg.Point{X: x(left + 0.04*s.width), Y: base},
			Max: vg.Point{X: x(left + 0.96*s.width), Y: y(d.Y)},
		}
		s.fill(&c, box)
		ranged := s.look
		ranged.color = ink // the bar has the colour of the series
		ranged.errorBar(&c, (box.Min.X+box.Max.X)/2, d, y)
	}
}

// fill draws a bar or its sample in the legend.
func (l look) fill(c *draw.Canvas, box vg.Rectangle) {
	if !l.hollow {
		c.SetColor(l.color)
		c.Fill(box.Path())
		return
	}
	c.SetLineStyle(draw.LineStyle{Color: l.color, Width: 1.4, Dashes: []vg.Length{3, 2}})
	c.Stroke(box.Path())
}
