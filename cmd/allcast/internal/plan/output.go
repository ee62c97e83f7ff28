package plan

import (
	"fmt"
	"strings"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/plan"
)

// table is a table of the answer, for the terminal and for the page.
type table struct {
	Title string
	Note  string
	Head  []string
	Rows  [][]string
}

// tables returns all tables of a plan.
func tables(p *plan.Plan) []table {
	return []table{
		stepTable(p),
		linkTable(p, "Busiest link of each kind, GB per step", "Counted on the graph, payload only.", "%.2f",
			func(t *plan.Tier) float64 { return t.Max }),
		linkTable(p, "All links of each kind, GB per step", "Counted on the graph, payload only.", "%.0f",
			func(t *plan.Tier) float64 { return t.Total }),
		switchTable(p),
	}
}

// number writes a value, with a mark if it was scaled up.
func number(n plan.Number, format string) string {
	text := fmt.Sprintf(format, n.Value)
	if n.Source == plan.FromScaledSim {
		text += "*"
	}
	return text
}

func stepTable(p *plan.Plan) table {
	t := table{
		Title: "Time per training step",
		Note: "From the simulator; * marks values scaled up from a smaller simulation. Exposed: communication that no " +
			"computation hides. Line rate: of an Allgather alone. Break-even: oversubscription from which the step is " +
			"5 % faster than with rings.",
		Head: []string{"placement", "algorithms", "step ms", "exposed ms", "line rate %", "speed-up", "break-even"},
	}
	for i := range p.Placed {
		for _, r := range p.Placed[i].Rows {
			t.Rows = append(t.Rows, []string{
				p.Placed[i].Placement, r.Algo, number(r.Step, "%.1f"), number(r.Exposed, "%.1f"), number(r.Allgather, "%.0f"),
				number(r.Speedup, "%.2f"), breakEven(&p.Placed[i], &r),
			})
		}
	}
	return t
}

// breakEven writes a break-even, or why there is none.
func breakEven(placed *plan.Placed, r *plan.Row) string {
	switch {
	case r.Algo == plan.Baseline || len(placed.Curves) == 0:
		return "-"
	case r.BreakEven == nil:
		return "none to 16"
	}
	return number(*r.BreakEven, "%.1f")
}

// linkTable has one column per tier.
func linkTable(p *plan.Plan, title, note, format string, value func(*plan.Tier) float64) table {
	t := table{Title: title, Note: note, Head: []string{"placement", "algorithms"}}
	for _, tier := range p.Placed[0].Rows[0].Tiers {
		t.Head = append(t.Head, tierWords(tier.Name))
	}
	for i := range p.Placed {
		for _, r := range p.Placed[i].Rows {
			row := []string{p.Placed[i].Placement, r.Algo}
			for j := range r.Tiers {
				row = append(row, fmt.Sprintf(format, value(&r.Tiers[j])/1e9))
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// tierWords writes the name of a tier.
func tierWords(name string) string { return strings.ReplaceAll(name, "_", " ") }

func switchTable(p *plan.Plan) table {
	s := &p.Switches
	t := table{
		Title: "Switches",
		Note: fmt.Sprintf("Counted on the graph, for one communicator: %d multicast groups, one per tree. A tree that all "+
			"sources share takes one entry per group at its switches; routes by source take one per rank and group. "+
			"Sums (inc) need %d aggregators.", s.Groups, s.Aggregators),
		Head: []string{"level", "switches", "entries each, shared", "in all", "entries each, by source", "in all"},
	}
	for i, e := range s.SharedTree {
		by := s.SourceSpecific[i]
		t.Rows = append(t.Rows, []string{
			e.Level, fmt.Sprint(e.Switches), fmt.Sprint(e.Max), fmt.Sprint(e.Total), fmt.Sprint(by.Max), fmt.Sprint(by.Total),
		})
	}
	return t
}

// text writes a plan for a terminal.
func text(p *plan.Plan) string {
	var out strings.Builder
	for _, line := range []string{networkWords(p), modelWords(p)} {
		out.WriteString("# " + line + "\n")
	}
	for _, t := range tables(p) {
		aligned := &cli.Table{}
		aligned.Note("%s. %s", t.Title, t.Note)
		for _, row := range append([][]string{t.Head}, t.Rows...) {
			cells := make([]any, len(row))
			for i, cell := range row {
				cells[i] = cell
			}
			aligned.Row(cells...)
		}
		out.WriteString("\n" + aligned.String())
	}
	out.WriteString("\nRecommendation:\n")
	for _, line := range p.Advice {
		out.WriteString("- " + line + "\n")
	}
	out.WriteString("\n")
	for _, line := range p.Notes {
		out.WriteString("# " + line + "\n")
	}
	return out.String()
}

func networkWords(p *plan.Plan) string {
	n := &p.Network
	if n.Spines == 0 {
		return fmt.Sprintf("%s: %d ranks at one switch, %.4g Gbit/s each.", n.Topology, n.Hosts, n.RateGbit)
	}
	return fmt.Sprintf("%s: %d ranks at %.4g Gbit/s, %d per leaf with %d uplinks of %.4g Gbit/s: %.3g:1 oversubscribed.",
		n.Topology, n.Hosts, n.RateGbit, n.HostsPerLeaf, n.Spines, n.UplinkGbit, n.Oversubscription)
}

func modelWords(p *plan.Plan) string {
	m := &p.Model
	return fmt.Sprintf("%.4g B parameters, %s, in %d layers of %.4g MB over %d shards; a layer computes for %.4g ms "+
		"forward and %.4g ms backward.", m.Params/1e9, m.DType, m.Layers, float64(m.LayerBytes)/1e6, m.Shards,
		m.ComputeMS, 2*m.ComputeMS)
}
