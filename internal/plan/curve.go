package plan

import (
	"context"
	"math"
	"slices"

	"github.com/allcast/allcast/internal/topology"
)

// curveRatios are the oversubscriptions of a curve.
var curveRatios = []float64{1, 2, 4, 8, 16}

// worthwhile is the gain of a step's time from which an algorithm counts as faster.
const worthwhile = 1.05

// Curve is the time of a step by oversubscription.
type Curve struct {
	Algo   string  `json:"algo"`
	Points []Point `json:"points"`
	Source Source  `json:"source"`
}

// Point is a point of a curve.
type Point struct {
	Oversubscription float64 `json:"oversubscription"`
	StepMS           float64 `json:"step_ms"`
}

// oversubscription returns the ratio of the rates below and above a leaf, at least 1.
func oversubscription(g *topology.Graph) float64 {
	s := g.Shape()
	if s.Spines == 0 {
		return 1
	}
	return max(1, float64(s.HostsPerLeaf)/float64(s.Spines)/s.Uplink)
}

// withRatio returns the network with another oversubscription.
func withRatio(g *topology.Graph, k float64) (*topology.Graph, error) {
	s := g.Shape()
	multiple := float64(s.HostsPerLeaf) / float64(s.Spines) / k
	if k == 1 {
		multiple = max(1, multiple) // as in topology.Parse
	}
	return g.Uplinks(multiple)
}

// curves simulates the step of each pair for other oversubscriptions. A star has no curves.
func (s *simulator) curves(ctx context.Context, g *topology.Graph, pairs []string) ([]Curve, error) {
	if g.Shape().Spines == 0 {
		return nil, nil
	}
	var list []simulation
	for _, pair := range pairs {
		for _, k := range curveRatios {
			at, err := withRatio(g, k)
			if err != nil {
				return nil, err
			}
			list = append(list, prepare(at, pair, s.model, pointWork))
		}
	}
	estimates, err := s.run(ctx, list)
	if err != nil {
		return nil, err
	}
	all := make([]Curve, len(pairs))
	for i, pair := range pairs {
		all[i] = Curve{Algo: pair, Source: FromSim}
		for j, k := range curveRatios {
			e := estimates[i*len(curveRatios)+j]
			all[i].Points = append(all[i].Points, Point{Oversubscription: k, StepMS: e.step * 1e3})
			if e.source != FromSim {
				all[i].Source = e.source
			}
		}
	}
	return all, nil
}

// searchSteps is the number of steps of the search for a break-even. Each of them halves the interval.
const searchSteps = 2

// breakEven returns the smallest oversubscription at which the step of a pair is worthwhile against the baseline's, and
// false if it is beyond the curve. Between the points of the curves, it simulates a few more.
func (s *simulator) breakEven(ctx context.Context, g *topology.Graph, base, curve *Curve) (Number, bool, error) {
	gain := func(i int) float64 { return base.Points[i].StepMS / curve.Points[i].StepMS }
	last := slices.IndexFunc(curveRatios, func(k float64) bool {
		return gain(slices.Index(curveRatios, k)) >= worthwhile
	})
	if last <= 0 {
		return Number{Value: 1, Source: curve.Source}, last == 0, nil
	}
	low, high := curveRatios[last-1], curveRatios[last]
	gainLow, gainHigh := gain(last-1), gain(last)
	for range searchSteps {
		k := math.Sqrt(low * high)
		at, err := withRatio(g, k)
		if err != nil {
			return Number{}, false, err
		}
		estimates, err := s.run(ctx, []simulation{
			prepare(at, base.Algo, s.model, pointWork), prepare(at, curve.Algo, s.model, pointWork),
		})
		if err != nil {
			return Number{}, false, err
		}
		if between := estimates[0].step / estimates[1].step; between >= worthwhile {
			high, gainHigh = k, between
		} else {
			low, gainLow = k, between
		}
	}
	k := low * math.Pow(high/low, (worthwhile-gainLow)/(gainHigh-gainLow))
	return Number{Value: k, Source: curve.Source}, true, nil
}
