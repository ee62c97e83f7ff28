package report

import (
	"fmt"
	"math"
	"slices"
)

// The scale has steps, not a gradient: the page's style gives each step its
// colour, another one on a dark screen. It is linear, so that twice the bytes
// look like twice the bytes; only what carries next to nothing (barriers,
// handshakes) is told from what carries something.
const (
	colourNone  = 0 // not a byte
	colourTrace = 1 // up to a hundredth of the most
	colourFirst = 2 // up to a tenth, and so on
	colours     = colourFirst + 10
)

type scale struct{ most uint64 }

func newScale(runs []Run) scale {
	var s scale
	for _, r := range runs {
		s.most = max(s.most, slices.Max(append([]uint64{0}, r.LinkBytes...)))
	}
	return s
}

// colour is the step of a link direction.
func (s scale) colour(n uint64) int {
	if n == 0 {
		return colourNone
	}
	part := float64(n) / float64(s.most)
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
	steps := []step{
		{Class: "c0", Label: "0", Title: "no bytes"},
		{Class: "c1", Label: volume(s.most / 100), Title: fmt.Sprintf("up to %s: a hundredth of the most", volume(s.most/100))},
	}
	for i := range 10 {
		from, to := s.most/100, uint64(float64(s.most)*float64(i+1)/10)
		if i > 0 {
			from = uint64(float64(s.most) * float64(i) / 10)
		}
		steps = append(steps, step{
			Class: class(colourFirst + i), Label: volume(to),
			Title: fmt.Sprintf("%s to %s", volume(from), volume(to)),
		})
	}
	return steps
}

func class(colour int) string { return fmt.Sprintf("c%d", colour) }
