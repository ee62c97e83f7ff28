package report

import (
	"fmt"
	"strings"

	"github.com/allcast/allcast/internal/topology"
)

// view is the input of the page's template.
type view struct {
	*Page
	Network string
	Folded  bool
	Levels  bool // whether there are several levels of switches
	Legend  []step
	Max     uint64
	Runs    []runView
	Paper   *paperView
}

// runView is a run's row of the table and its picture.
type runView struct {
	*Run
	All             uint64
	Ratio, Overhead string
	Busiest         string
	BusiestBytes    uint64
	Time            string
	Bar             bar
	Drawing         drawing
}

// bar is a total as a length; the longest of all runs is 100.
type bar struct{ All, Payload, Bound float64 }

func (p *Page) view() *view {
	l, s := newLayout(p.Graph), newScale(p.Runs)
	titled := *p
	if p.Title == "" {
		titled.Title = strings.TrimPrefix(p.Op+" on "+p.Graph.Name, " on ")
	}
	v := &view{
		Page: &titled, Network: l.describe(), Folded: l.folded, Levels: len(l.nodes) > int(topology.SpineLevel),
		Legend: s.legend(), Max: s.max, Paper: p.paper(l.tiers),
	}
	var longest uint64
	for i := range p.Runs {
		longest = max(longest, p.Runs[i].total())
	}
	for i := range p.Runs {
		v.Runs = append(v.Runs, p.runView(&p.Runs[i], l, s, longest))
	}
	return v
}

func (p *Page) runView(r *Run, l *layout, s scale, longest uint64) runView {
	all, busiest := r.total(), r.busiest()
	length := func(n uint64) float64 { return tenth(100 * float64(n) / float64(max(longest, 1))) }
	rv := runView{
		Run: r, All: all, Ratio: ratio(all, p.Runs[0].total()), Overhead: ratio(all, r.Bound), Time: "–",
		Busiest: linkName(p.Graph, busiest), BusiestBytes: r.LinkBytes[busiest],
		Bar: bar{All: length(all), Payload: length(r.PayloadLinkBytes)}, Drawing: l.draw(r, s),
	}
	if r.TimeUS > 0 {
		rv.Time = duration(r.TimeUS)
	}
	if r.Bound <= longest {
		rv.Bar.Bound = length(r.Bound)
	}
	return rv
}

func (l *layout) describe() string {
	parts := []string{l.count(topology.HostLevel)}
	for k := topology.LeafLevel; int(k) < len(l.nodes); k++ {
		parts = append(parts, l.count(k))
	}
	return fmt.Sprintf("%s: %s, %d cables.", l.g.Name, strings.Join(parts, ", "), len(l.g.Links)/2)
}
