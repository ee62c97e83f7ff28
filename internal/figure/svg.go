package figure

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image/color"
	"io"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The size of a plot, in units of its own. It has no fixed size on a page. At the width of a phone, letters are still
// readable.
const (
	pageWidth   = vg.Length(460)
	plotHeight  = vg.Length(300) // without legend
	border      = vg.Length(10)
	textSize    = vg.Length(13)
	lineSpacing = 1.3
	angledNames = vg.Length(45) // more height if the names of the X axis are at an angle
)

// Draw writes a figure as SVG. The same figure always gives the same bytes.
func Draw(w io.Writer, f *Figure) error {
	if err := f.check(); err != nil {
		return fmt.Errorf("figure %q: %w", f.Title, err)
	}
	all := looks(f.Series)
	p := f.newPlot(all)
	l := newLegend(f.Series, all, style(textSize), pageWidth-2*border)
	height := plotHeight + l.height() + vg.Length(strings.Count(p.Title.Text, "\n"))*textSize*lineSpacing
	if p.X.Tick.Label.Rotation != 0 {
		height += angledNames
	}

	svg := &canvas{Canvas: vgsvg.New(pageWidth, height)}
	page := draw.New(svg)
	page.SetColor(color.White)
	page.Fill(page.Path())
	inside := draw.Crop(page, border, -border, border, -border)
	f.drawPlot(p, draw.Crop(inside, 0, 0, l.height()+border, 0))
	l.draw(&inside, vg.Point{X: inside.Min.X, Y: inside.Min.Y + l.height()})
	return svg.write(w, f.Title)
}

// drawPlot draws the plot and the labels of its axes. The library would place labels of logarithmic axes wrongly.
func (f *Figure) drawPlot(p *plot.Plot, c draw.Canvas) {
	label := style(textSize)
	label.XAlign, label.YAlign = text.XCenter, text.YTop
	xLabel := wrap(label, f.X.Label, c.Size().X*0.8)
	yLabel := wrap(label, f.Y.Label, c.Size().Y*0.75)
	const gap = 4
	plotted := draw.Crop(c, label.Height(yLabel)+gap, 0, label.Height(xLabel)+gap, 0)
	p.Draw(plotted)
	data := p.DataCanvas(plotted)
	c.FillText(label, vg.Point{X: data.Center().X, Y: c.Min.Y + label.Height(xLabel)}, xLabel)
	label.Rotation = math.Pi / 2
	c.FillText(label, vg.Point{X: c.Min.X, Y: data.Center().Y}, yLabel)
}

// canvas remembers the widths of all texts.
type canvas struct {
	*vgsvg.Canvas
	widths []vg.Length
}

// FillString implements vg.Canvas.
func (c *canvas) FillString(face font.Face, at vg.Point, text string) {
	c.widths = append(c.widths, face.Width(text))
	c.Canvas.FillString(face, at, text)
}

// write writes the picture so that it fits any width, and so that texts keep their widths where the font is not
// installed.
func (c *canvas) write(w io.Writer, title string) error {
	var drawn bytes.Buffer
	if _, err := c.WriteTo(&drawn); err != nil {
		return err
	}
	_, body, found := strings.Cut(drawn.String(), `xmlns:xlink="http://www.w3.org/1999/xlink">`)
	texts := strings.Split(body, "<text ")
	if !found || len(texts) != len(c.widths)+1 {
		return fmt.Errorf("figure %q: the drawing has an unknown form", title)
	}
	var label bytes.Buffer
	if err := xml.EscapeText(&label, []byte(title)); err != nil {
		return err
	}
	var out bytes.Buffer
	width, height := c.Size()
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.5g %.5g" role="img" aria-label="%s">%s`,
		width.Points(), height.Points(), label.String(), texts[0])
	for i, width := range c.widths {
		text := strings.Replace(texts[i+1], "font-family:Liberation Sans;",
			"font-family:'Liberation Sans',Arial,Helvetica,sans-serif;", 1)
		fmt.Fprintf(&out, `<text textLength="%.4g" lengthAdjust="spacingAndGlyphs" %s`, width.Points(), text)
	}
	_, err := out.WriteTo(w)
	return err
}
