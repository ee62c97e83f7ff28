package report

import (
	"fmt"
	"strings"
)

// view is the input of the page's template.
type view struct {
	Title, Command, Notes, Network, First string
	Folded                                bool
	Levels                                bool // whether there are several levels of switches
	Legend                                []step
	Most                                  amount
	Runs                                  []runView
	Paper                                 *paperView
}

// runView is a run's row of the table and its picture.
type runView struct {
	Name, Ratio, Overhead string
	All, Payload, Bound   amount
	Busiest               string
	BusiestBytes          amount
	Repaired              string
	Time                  string
	Verified              bool
	Note                  string
	Bar                   bar
	Drawing               drawing
}

// amount is a number, formatted for users and for programs.
type amount struct {
	Value uint64
	Text  string
	Known bool
}

// bar is a total as a length; the longest of all runs is 100.
type bar struct{ All, Payload, Bound string }

func known(n uint64) amount { return amount{Value: n, Text: volume(n), Known: true} }

func ifKnown(n uint64) amount {
	if n == 0 {
		return amount{}
	}
	return known(n)
}

func (p *Page) view() *view {
	l, s := newLayout(p.Graph), newScale(p.Runs)
	v := &view{
		Title: p.Title, Command: p.Command, Notes: p.Notes, Network: l.describe(), First: p.Runs[0].Name,
		Folded: l.folded, Levels: len(l.nodes) > int(spineNode), Legend: s.legend(), Most: known(s.max),
		Paper: p.paper(l.tiers),
	}
	if v.Title == "" {
		v.Title = strings.TrimSpace(p.Op+" on ") + " " + p.Graph.Name
		if p.Op == "" {
			v.Title = p.Graph.Name
		}
	}
	var longest uint64
	for i := range p.Runs {
		longest = max(longest, p.Runs[i].total())
	}
	first := p.Runs[0].total()
	for i := range p.Runs {
		v.Runs = append(v.Runs, p.runView(&p.Runs[i], l, s, first, longest))
	}
	return v
}

func (p *Page) runView(r *Run, l *layout, s scale, first, longest uint64) runView {
	all := r.total()
	busiest := r.busiest()
	rv := runView{
		Name: r.Name, All: known(all), Payload: ifKnown(r.PayloadLinkBytes), Bound: ifKnown(r.Bound),
		Ratio: "–", Overhead: "–",
		Busiest: linkName(p.Graph, busiest), BusiestBytes: known(r.LinkBytes[busiest]),
		Repaired: grouped(r.Repaired), Time: "–", Verified: r.Verified, Note: r.Note, Drawing: l.draw(r, s),
	}
	if first > 0 {
		rv.Ratio = times(float64(all) / float64(first))
	}
	if r.Bound > 0 {
		rv.Overhead = times(float64(all) / float64(r.Bound))
	}
	if r.TimeUS > 0 {
		rv.Time = duration(r.TimeUS)
	}
	length := func(n uint64) string {
		return coordinate(tenth(100 * float64(n) / float64(max(longest, 1))))
	}
	rv.Bar = bar{All: length(all), Payload: length(r.PayloadLinkBytes)}
	if r.Bound > 0 && r.Bound <= longest {
		rv.Bar.Bound = length(r.Bound)
	}
	return rv
}

func (l *layout) describe() string {
	parts := []string{l.count(hostNode)}
	for k := leafNode; int(k) < len(l.nodes); k++ {
		parts = append(parts, l.count(k))
	}
	return fmt.Sprintf("%s: %s, %d cables.", l.g.Name, strings.Join(parts, ", "), len(l.g.Links)/2)
}
