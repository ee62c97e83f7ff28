package plan

import (
	"fmt"

	"github.com/allcast/allcast/internal/figure"
)

// Figures returns the plots of a plan. Their titles name the source.
func (p *Plan) Figures() []figure.Figure {
	var pairs, gathers []int // rows to show
	seen := map[string]bool{}
	for i, r := range p.Placed[0].Rows {
		pairs = append(pairs, i)
		if gather, _ := parts(r.Algo); !seen[gather] {
			seen[gather] = true
			gathers = append(gathers, i)
		}
	}
	all := []figure.Figure{
		p.bars("Time per training step", "time, ms", pairs, func(r *Row) Number { return r.Step }),
		p.bars("Allgather alone", "share of line rate, %", gathers, func(r *Row) Number { return r.Allgather }),
	}
	for i, r := range gathers {
		all[1].X.Names[i], _ = parts(p.Placed[0].Rows[r].Algo)
	}
	if p.Network.Spines > 0 {
		all = append(all, p.bars("Busiest link between switches", "GB per step", pairs, (*Row).busiestBetweenSwitches))
	}
	for i := range p.Placed {
		if len(p.Placed[i].Curves) > 0 {
			all = append(all, p.Placed[i].curveFigure())
		}
	}
	return all
}

// busiestBetweenSwitches returns the largest load of a link between switches in GB.
func (r *Row) busiestBetweenSwitches() Number {
	n := Number{Source: FromGraph}
	for _, t := range r.Tiers {
		if t.Name != "host_up" && t.Name != "host_down" {
			n.Value = max(n.Value, t.Max/1e9)
		}
	}
	return n
}

// bars compares rows, with one series per placement.
func (p *Plan) bars(title, label string, rows []int, value func(*Row) Number) figure.Figure {
	f := figure.Figure{Y: figure.Axis{Label: label}}
	for _, i := range rows {
		f.X.Names = append(f.X.Names, p.Placed[0].Rows[i].Algo)
	}
	source := FromSim
	for i := range p.Placed {
		s := figure.Series{Name: placementWords(p.Placed[i].Placement), Style: figure.Bars}
		for at, j := range rows {
			n := value(&p.Placed[i].Rows[j])
			s.Data = append(s.Data, figure.Point{X: float64(at), Y: n.Value})
			if n.Source != FromSim {
				source = n.Source
			}
		}
		f.Series = append(f.Series, s)
	}
	f.Title = fmt.Sprintf("%s (%s)", title, source)
	return f
}

func (p *Placed) curveFigure() figure.Figure {
	f := figure.Figure{
		Title: fmt.Sprintf("Step by oversubscription, %s (%s)", placementWords(p.Placement), p.Curves[0].Source),
		X:     figure.Axis{Label: "oversubscription of the links between switches", Log: 2},
		Y:     figure.Axis{Label: "time, ms", Log: 10},
	}
	for _, c := range p.Curves {
		s := figure.Series{Name: c.Algo, Style: figure.Line}
		for _, point := range c.Points {
			s.Data = append(s.Data, figure.Point{X: point.Oversubscription, Y: point.StepMS})
		}
		f.Series = append(f.Series, s)
	}
	return f
}
