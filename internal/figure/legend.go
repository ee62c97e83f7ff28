package figure

import (
	"strings"

	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	sampleWidth = vg.Length(20) // of a series in the legend
	sampleGap   = vg.Length(5)  // between a sample and its name
	itemGap     = vg.Length(16)
)

// legend is a strip below the plot, where it cannot cover data.
type legend struct {
	style text.Style
	rows  [][]legendItem
}

type legendItem struct {
	series *Series
	look   look
	name   string // with line breaks
	width  vg.Length
}

// newLegend arranges the names of all series in rows.
func newLegend(series []Series, all []look, style text.Style, width vg.Length) *legend {
	l := &legend{style: style}
	left := vg.Length(0) // room in the last row
	for i := range series {
		s := &series[i]
		name := s.Name
		if s.Paper {
			name = "paper: " + strings.TrimSuffix(strings.TrimPrefix(name, "paper: "), ", paper")
			name = strings.TrimSuffix(name, ": paper")
		}
		name = wrap(style, name, width-sampleWidth-sampleGap)
		item := legendItem{s, all[i], name, sampleWidth + sampleGap + style.Width(name) + itemGap}
		if i == 0 || item.width-itemGap > left {
			l.rows = append(l.rows, nil)
			left = width
		}
		last := len(l.rows) - 1
		l.rows[last] = append(l.rows[last], item)
		left -= item.width
	}
	return l
}

func (l *legend) lineHeight() vg.Length { return l.style.Font.Size * lineSpacing }

// rowHeight is the height of a row, in which names can have several lines.
func (l *legend) rowHeight(row []legendItem) vg.Length {
	lines := 1
	for _, item := range row {
		lines = max(lines, strings.Count(item.name, "\n")+1)
	}
	return vg.Length(lines) * l.lineHeight()
}

func (l *legend) height() (h vg.Length) {
	for _, row := range l.rows {
		h += l.rowHeight(row)
	}
	return h
}

// draw draws the legend with its upper left corner at a point.
func (l *legend) draw(c *draw.Canvas, at vg.Point) {
	y := at.Y
	for _, row := range l.rows {
		x := at.X
		middle := y - l.lineHeight()/2
		for _, item := range row {
			item.drawSample(c, vg.Point{X: x, Y: middle})
			for i, line := range strings.Split(item.name, "\n") {
				baseline := middle - l.style.Font.Size*0.35 - vg.Length(i)*l.lineHeight()
				c.FillText(l.style, vg.Point{X: x + sampleWidth + sampleGap, Y: baseline}, line)
			}
			x += item.width
		}
		y -= l.rowHeight(row)
	}
}

func (item legendItem) drawSample(c *draw.Canvas, left vg.Point) {
	centre := vg.Point{X: left.X + sampleWidth/2, Y: left.Y}
	switch item.series.Style {
	case Bars:
		item.look.fill(c, vg.Rectangle{
			Min: vg.Point{X: centre.X - 6, Y: centre.Y - 4.5}, Max: vg.Point{X: centre.X + 6, Y: centre.Y + 4.5},
		})
		return
	case Line:
		c.StrokeLine2(item.look.line(), left.X, left.Y, left.X+sampleWidth, left.Y)
	case Points:
	}
	item.look.mark(c, centre, points{item.series, item.look}.radius())
}
