package report

import (
	"fmt"
	"math"
	"slices"
)

// The scale has steps, not a gradient, and the page's style gives each step a colour for light and
// dark screens. It is linear, so that twice the bytes look like twice the bytes. Links with almost
// no traffic (barriers, handshakes) have a step of their own.
const (
	colourNone  = 0 // no bytes
	colourTrace = 1 // up to a hundredth of the maximum
	colourFirst = 2 // up to a tenth, and so on
	colours     = colourFirst + 10
)

type scale struct{ max uint64 }

func newScale(runs []Run) scale {
	var s scale
	for _, r := range runs {
		s.max = max(s.max, slices.Max(append([]uint64{0}, r.LinkBytes...)))
	}
	return s
}

// colour returns the step of a link direction.
func (s scale) colour(n uint64) int {
	if n == 0 {
		return colourNone
	}
	part := float64(n) / float64(s.max)
	if part <= 0.01 {
		return colourTrace
	}
	return colourFirst + max(0, min(9, int(math.Ceil(part*10))-1))
}

// step is a field of the legend.
type step struct {
	Class, Label, Title string
}

func (s scale) legend() []step {
	trace := s.max / 100
	steps := []step{
		{Class: class(colourNone), Label: "0", Title: "no bytes"},
		{Class: class(colourTrace), Label: volume(trace), Title: "up to " + volume(trace) + ": a hundredth of the most"},
	}
	for i, from := 0, trace; i < 10; i++ {
		to := uint64(float64(s.max) * float64(i+1) / 10)
		steps = append(steps, step{
			Class: class(colourFirst + i), Label: volume(to), Title: volume(from) + " to " + volume(to),
		})
		from = to
	}
	return steps
}

func class(colour int) string { return fmt.Sprintf("c%d", colour) }
