package figure

import (
	"math"

	"gonum.org/v1/plot"
)

// maxTicks is the number of labels for which an axis has room.
const maxTicks = 8

// linearTicks are round numbers.
type linearTicks struct {
	unit  string
	whole bool // whether there are whole numbers only
}

// Ticks implements plot.Ticker.
func (l linearTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	step := roundStep((high - low) / (maxTicks - 1))
	if l.whole {
		step = max(1, step)
	}
	for i := math.Ceil(low/step - 1e-9); i*step <= high+step*1e-9; i++ {
		v := i*step + 0 // no negative zero
		ticks = append(ticks, plot.Tick{Value: v, Label: formatNumber(v, 10, l.unit)})
	}
	return ticks
}

// roundStep returns the smallest of 1, 2, 5, 10, ... that is at least as large.
func roundStep(atLeast float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(atLeast)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= atLeast*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// logTicks are powers of a base, or round numbers between them if there are few powers.
type logTicks struct {
	base int
	unit string
}

// Ticks implements plot.Ticker.
func (l logTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	base := float64(l.base)
	logBase := math.Log(base)
	first, last := math.Ceil(math.Log(low)/logBase-1e-9), math.Floor(math.Log(high)/logBase+1e-9)
	if last-first < 1 {
		return linearTicks{unit: l.unit}.Ticks(low, high)
	}
	every := math.Ceil((last - first + 1) / maxTicks)
	for e := first; e <= last; e++ {
		t := plot.Tick{Value: math.Pow(base, e)}
		if math.Mod(e-first, every) == 0 {
			t.Label = formatNumber(t.Value, l.base, l.unit)
		}
		ticks = append(ticks, t)
	}
	if l.base == 10 && last-first < 3 {
		ticks = append(ticks, l.between(low, high, first-1, last)...)
	}
	return ticks
}

// between returns labelled ticks at 2 and 5 times powers of ten.
func (l logTicks) between(low, high, first, last float64) (ticks []plot.Tick) {
	for e := first; e <= last; e++ {
		for _, m := range []float64{2, 5} {
			if v := m * math.Pow(10, e); v >= low && v <= high {
				ticks = append(ticks, plot.Tick{Value: v, Label: formatNumber(v, 10, l.unit)})
			}
		}
	}
	return ticks
}

// nameTicks are the names of the positions 0, 1, ...
type nameTicks []string

// Ticks implements plot.Ticker.
func (n nameTicks) Ticks(float64, float64) (ticks []plot.Tick) {
	for i, name := range n {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: name})
	}
	return ticks
}
