package figure

import (
	"image/color"
	"math"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// palette holds colours that people with any kind of colour vision can tell apart (Okabe and Ito).
var palette = []color.Color{
	color.RGBA{0x00, 0x72, 0xB2, 0xFF}, // blue
	color.RGBA{0xD5, 0x5E, 0x00, 0xFF}, // vermilion
	color.RGBA{0x00, 0x9E, 0x73, 0xFF}, // green
	color.RGBA{0xCC, 0x79, 0xA7, 0xFF}, // purple
	color.RGBA{0xE6, 0x9F, 0x00, 0xFF}, // orange
	color.RGBA{0x56, 0xB4, 0xE9, 0xFF}, // sky blue
	color.RGBA{0x7F, 0x7F, 0x7F, 0xFF}, // grey
}

var (
	ink  = color.RGBA{0x11, 0x11, 0x11, 0xFF} // text, axes and the paper's points
	grid = color.RGBA{0xDD, 0xDD, 0xDD, 0xFF}
)

// look is what distinguishes a series: a colour and a shape, filled unless the series is the paper's.
type look struct {
	color  color.Color
	shape  int // 0 circle, 1 square, 2 triangle, 3 diamond
	hollow bool
	dashes []vg.Length
}

// looks returns a look for each series.
func looks(series []Series) []look {
	all := make([]look, len(series))
	ours, theirs := 0, 0
	for i, s := range series {
		if s.Paper {
			all[i] = look{color: ink, shape: theirs % 4, hollow: true, dashes: []vg.Length{4, 3}}
			theirs++
			continue
		}
		all[i] = look{color: palette[ours%len(palette)], shape: ours % 4}
		if ours >= len(palette) {
			all[i].dashes = []vg.Length{6, 2}
		}
		ours++
	}
	return all
}

func (l look) line() draw.LineStyle {
	return draw.LineStyle{Color: l.color, Width: 1.6, Dashes: l.dashes}
}

// mark draws a marker.
func (l look) mark(c *draw.Canvas, at vg.Point, radius vg.Length) {
	path := l.outline(at, radius)
	if !l.hollow {
		c.SetColor(l.color)
		c.Fill(path)
		return
	}
	// Our data must stay visible inside, so there is no fill. A halo separates the outline from dark bars.
	c.SetLineStyle(draw.LineStyle{Color: color.White, Width: 3.4})
	c.Stroke(path)
	c.SetLineStyle(draw.LineStyle{Color: l.color, Width: 1.4})
	c.Stroke(path)
}

func (l look) outline(at vg.Point, r vg.Length) (path vg.Path) {
	switch l.shape {
	case 0:
		path.Move(vg.Point{X: at.X + r, Y: at.Y})
		path.Arc(at, r, 0, 2*math.Pi)
		path.Close()
		return path
	case 1:
		return polygon(at, r, [][2]vg.Length{{-0.9, -0.9}, {0.9, -0.9}, {0.9, 0.9}, {-0.9, 0.9}})
	case 2:
		return polygon(at, r, [][2]vg.Length{{-1, -0.7}, {1, -0.7}, {0, 1.1}})
	default:
		return polygon(at, r, [][2]vg.Length{{-1.2, 0}, {0, -1.2}, {1.2, 0}, {0, 1.2}})
	}
}

func polygon(at vg.Point, r vg.Length, corners [][2]vg.Length) (path vg.Path) {
	for i, corner := range corners {
		p := vg.Point{X: at.X + r*corner[0], Y: at.Y + r*corner[1]}
		if i == 0 {
			path.Move(p)
		} else {
			path.Line(p)
		}
	}
	path.Close()
	return path
}
