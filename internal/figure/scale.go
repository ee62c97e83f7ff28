package figure

import (
	"math"

	"gonum.org/v1/plot"
)

// origin says whether an axis shows zero.
type origin int

const (
	fitData  origin = iota // only if the data has it
	nearZero               // also if that takes less than half of the axis
	fromZero               // always, as bars need it
)

// setScale sets the range, the scale and the ticks of an axis for its values.
func (a Axis) setScale(p *plot.Axis, values []float64, zero origin) {
	low, high, whole := values[0], values[0], true
	for _, v := range values {
		low, high, whole = min(low, v), max(high, v), whole && v == math.Trunc(v)
	}
	switch {
	case a.Names != nil:
		p.Min, p.Max = -0.5, float64(len(a.Names))-0.5
		p.Tick.Marker, p.Tick.Length = nameTicks(a.Names), 0
	case a.Log != 0:
		p.Min, p.Max = logRange(low, high, float64(a.Log), zero == fromZero)
		p.Scale, p.Tick.Marker = plot.LogScale{}, logTicks{a.Log, a.unit()}
	default:
		p.Min, p.Max = linearRange(low, high, zero)
		p.Tick.Marker = linearTicks{a.unit(), whole}
	}
}

// linearRange leaves a margin around the values.
func linearRange(low, high float64, zero origin) (float64, float64) {
	always := zero == fromZero
	atLow := low >= 0 && (always || zero == nearZero && low < high/2)
	atHigh := high <= 0 && (always || zero == nearZero && high > low/2)
	if atLow {
		low = 0
	}
	if atHigh {
		high = 0
	}
	margin := (high - low) * 0.05
	if margin == 0 {
		margin = max(math.Abs(high)*0.05, 1e-9)
	}
	if !atLow {
		low -= margin
	}
	if !atHigh {
		high += margin
	}
	return low, high
}

// logRange leaves a margin around the values. Bars start at the power of the base below the smallest value, because
// there is no zero.
func logRange(low, high, base float64, bars bool) (float64, float64) {
	if bars {
		exponent := math.Floor(math.Log(low)/math.Log(base) - 1e-9)
		return math.Pow(base, exponent), high * math.Pow(high/low, 0.05) * 1.1
	}
	margin := math.Pow(high/low, 0.05)
	if margin < 1.1 {
		margin = 1.1
	}
	return low / margin, high * margin
}
