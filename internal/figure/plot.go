package figure

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// newPlot returns the plot of a figure, without legend and axis labels.
func (f *Figure) newPlot(all []look) *plot.Plot {
	p := plot.New()
	p.Title.TextStyle = style(textSize * 1.1)
	p.Title.TextStyle.Font.Weight = 3 // bold, in the numbers of golang.org/x/image/font
	p.Title.TextStyle.XAlign, p.Title.TextStyle.YAlign = text.XCenter, text.YTop
	p.Title.Text, p.Title.Padding = wrap(p.Title.TextStyle, f.Title, pageWidth-4*border), 8
	f.setAxes(p)
	lines := plotter.NewGrid()
	lines.Horizontal.Color, lines.Vertical.Color = grid, grid
	lines.Horizontal.Width, lines.Vertical.Width = 0.6, 0.6
	if f.X.Names != nil {
		lines.Vertical.Width = 0
	}
	p.Add(lines)
	f.addSeries(p, all)
	return p
}

func (f *Figure) setAxes(p *plot.Plot) {
	var x, y []float64
	hasBars := false
	for _, s := range f.Series {
		hasBars = hasBars || s.Style == Bars
		for _, d := range s.Data {
			x, y = append(x, d.X), append(y, d.Y)
			if d.ranged() {
				y = append(y, d.Low, d.High)
			}
		}
	}
	f.X.setScale(&p.X, x, fitData)
	zero := nearZero
	if hasBars {
		zero = fromZero
	}
	f.Y.setScale(&p.Y, y, zero)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle = draw.LineStyle{Color: ink, Width: 0.8}
		axis.Tick.LineStyle, axis.Tick.Length, axis.Padding = axis.LineStyle, 4, 0
		align := axis.Tick.Label
		axis.Tick.Label = style(textSize * 0.92)
		axis.Tick.Label.XAlign, axis.Tick.Label.YAlign = align.XAlign, align.YAlign
	}
	if f.X.Names != nil {
		f.fitNames(p)
	}
}

// fitNames breaks the names of the X axis into lines, or writes them at an angle if a word is too long.
func (f *Figure) fitNames(p *plot.Plot) {
	const yAxis = 70 // about the room for the Y axis
	slot := (pageWidth - 2*border - yAxis) / vg.Length(len(f.X.Names))
	label := &p.X.Tick.Label
	p.X.Tick.Color = color.White // only a distance between the axis and the names
	names := make(nameTicks, len(f.X.Names))
	for i, name := range f.X.Names {
		names[i] = wrap(*label, name, slot-6)
		if label.Width(names[i]) > slot-2 {
			f.angleNames(p)
			return
		}
	}
	p.X.Tick.Marker = names
}

// angleNames writes the names of the X axis at an angle.
func (f *Figure) angleNames(p *plot.Plot) {
	const maxWidth = 100 // the first name starts left of the axis
	label := &p.X.Tick.Label
	label.Rotation, label.XAlign, label.YAlign = math.Pi/5, text.XRight, text.YCenter
	p.X.Tick.Length = 10 // the corner of a second line is higher than the anchor of the name
	names := make(nameTicks, len(f.X.Names))
	for i, name := range f.X.Names {
		names[i] = wrap(*label, name, maxWidth)
	}
	p.X.Tick.Marker = names
}

// addSeries adds bars first, so that they do not hide points.
func (f *Figure) addSeries(p *plot.Plot, all []look) {
	for _, b := range arrange(f.Series, all) {
		p.Add(b)
	}
	for i := range f.Series {
		if f.Series[i].Style != Bars {
			p.Add(points{&f.Series[i], all[i]})
		}
	}
}

func style(size vg.Length) text.Style {
	return text.Style{
		Color: ink, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}, Handler: plot.DefaultTextHandler,
	}
}
