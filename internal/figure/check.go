package figure

import (
	"errors"
	"fmt"
	"math"
)

// check returns an error if the figure cannot be drawn.
func (f *Figure) check() error {
	for _, a := range []struct {
		name string
		Axis
	}{{"X", f.X}, {"Y", f.Y}} {
		if a.Log != 0 && a.Log != 2 && a.Log != 10 {
			return fmt.Errorf("the %s axis has a scale of base %d: want 2, 10, or 0 for a linear one", a.name, a.Log)
		}
		if a.Log != 0 && a.Names != nil {
			return fmt.Errorf("the %s axis has both names and a logarithmic scale", a.name)
		}
		if a.Label == "" && a.Names == nil {
			return fmt.Errorf("the %s axis has no label", a.name)
		}
	}
	if len(f.Series) == 0 {
		return errors.New("no series")
	}
	for i := range f.Series {
		if err := f.checkSeries(&f.Series[i]); err != nil {
			return fmt.Errorf("series %d (%q): %w", i+1, f.Series[i].Name, err)
		}
	}
	return nil
}

func (f *Figure) checkSeries(s *Series) error {
	if s.Name == "" {
		return errors.New("no name for the legend")
	}
	if len(s.Data) == 0 {
		return errors.New("no points")
	}
	if s.Style != Line && s.Style != Points && s.Style != Bars {
		return fmt.Errorf("unknown style %q: want %s, %s or %s", s.Style, Line, Points, Bars)
	}
	if s.Style == Bars && f.X.Names == nil {
		return errors.New("bars need names on the X axis")
	}
	seen := make(map[float64]bool)
	for i, p := range s.Data {
		if err := f.checkPoint(p); err != nil {
			return fmt.Errorf("point %d: %w", i+1, err)
		}
		if s.Style == Bars && seen[p.X] {
			return fmt.Errorf("point %d: a second bar for %q", i+1, f.X.Names[int(p.X)])
		}
		seen[p.X] = true
	}
	return nil
}

func (f *Figure) checkPoint(p Point) error {
	if err := f.X.checkValue(p.X); err != nil {
		return fmt.Errorf("its X is %v: %w", p.X, err)
	}
	values := []float64{p.Y}
	if p.ranged() {
		values = append(values, p.Low, p.High)
	}
	for _, y := range values {
		if err := f.Y.checkValue(y); err != nil {
			return fmt.Errorf("its Y is %v: %w", y, err)
		}
	}
	if p.Low > p.High {
		return fmt.Errorf("its range is empty: %v to %v", p.Low, p.High)
	}
	return nil
}

func (a Axis) checkValue(v float64) error {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return errors.New("not a finite number")
	case a.Log != 0 && v <= 0:
		return errors.New("a logarithmic scale has positive values only")
	case a.Names != nil && (v != math.Trunc(v) || v < 0 || int(v) >= len(a.Names)):
		return fmt.Errorf("the axis has the %d positions 0, 1, ... only", len(a.Names))
	}
	return nil
}

// ranged reports whether the point has an error bar.
func (p Point) ranged() bool { return p.Low != p.High }
