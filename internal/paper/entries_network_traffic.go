package paper

import (
	"context"
	"fmt"
	"strings"

	"github.com/allcast/allcast/internal/figure"
	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/sim"
)

// figure2Network is the network of Figure 2: 1024 hosts, and switches of radix 32.
const figure2Network = "fat-tree3:1024,32"

// figure2Algorithms are the algorithms of Figure 2 with the names that the paper has for them.
var figure2Algorithms = []struct{ algo, name string }{
	{"linear", "linear"},
	{"ring", "ring"},
	{"recursive-doubling", "recursive doubling"},
	{"mcast", "multicast"},
}

// countedTraffic counts the Allgather of Figure 2 on the graph. It returns block-link traversals by algorithm.
func countedTraffic(e *Env) (map[string]int64, error) {
	return cached(e, "traffic", func() (map[string]int64, error) {
		e.progress(0, "counting on "+figure2Network)
		all, err := model.CountTraffic(mustParse(figure2Network))
		if err != nil {
			return nil, err
		}
		counts := make(map[string]int64)
		for _, t := range all {
			if t.Op == "allgather" {
				counts[t.Algo] = t.BlockLinks
			}
		}
		return counts, nil
	})
}

// linkTraffic is the entry of claim C1.
func linkTraffic(_ context.Context, e *Env) (*Outcome, error) {
	counts, err := countedTraffic(e)
	if err != nil {
		return nil, err
	}
	ratio := float64(counts["ring"]) / float64(counts["mcast"])
	o := &Outcome{
		Verdict: Miss, Command: "allcast model traffic --topology " + figure2Network,
		Ours: fmt.Sprintf("Counted on the graph, a ring has %.3f times the traffic of multicast: %d to %d traversals.",
			ratio, counts["ring"], counts["mcast"]),
		Tables: []Table{{
			Name: "c1-traffic", Title: "link traffic of Allgather on " + figure2Network,
			Columns: []string{"algorithm", "block-link traversals", "over multicast"},
		}},
	}
	for _, a := range figure2Algorithms {
		o.Tables[0].Rows = append(o.Tables[0].Rows,
			[]any{a.name, counts[a.algo], float64(counts[a.algo]) / float64(counts["mcast"])})
	}
	if ratio >= 1.99 && ratio <= 2.01 {
		o.Verdict = Hit
	}
	return o, nil
}

func figure2(ctx context.Context, e *Env) (*Outcome, error) {
	o, err := linkTraffic(ctx, e)
	if err != nil {
		return nil, err
	}
	ours := figure.Series{Name: "counted on the graph", Style: figure.Bars}
	f := figure.Figure{
		Title: "Link traffic of Allgather, 1024 nodes, radix-32 switches",
		X:     figure.Axis{Label: "algorithm"},
		Y:     figure.Axis{Label: "block-link traversals"},
	}
	for i, row := range o.Tables[0].Rows {
		f.X.Names = append(f.X.Names, figure2Algorithms[i].name)
		ours.Data = append(ours.Data, figure.Point{X: float64(i), Y: float64(row[1].(int64))})
	}
	f.Series = []figure.Series{ours, paperPoints("fig2", "the authors' script", figure.Points)}
	o.Tables[0].Name = "fig2-traffic"
	o.Figures = []NamedFigure{{"fig2-traffic", f}}
	o.Reason = "The authors' script counts with a formula that differs from the graph: see the slips."
	return o, nil
}

// oncePerLink is the entry of claim C3.
func oncePerLink(ctx context.Context, e *Env) (*Outcome, error) {
	const overhead = 0.03 // headers and control messages
	specs := []string{"star:8", "fat-tree:16,4,2", "fat-tree3:64,8", Testbed}
	o := &Outcome{
		Verdict: Hit, Command: "allcast sim allgather --topology fat-tree:16,4,2 --bytes 64K --json",
		Tables: []Table{{
			Name: "c3-crossings", Title: "crossings of links by multicast without losses",
			Columns: []string{
				"network", "operation", "bytes per sender",
				"crossings of a link by a chunk, at most", "payload on links over the bound",
				"all bytes on links over the bound",
			},
		}},
	}
	steps := count{env: e, total: 2 * len(specs)}
	var worst float64
	for _, spec := range specs {
		for _, op := range []string{"broadcast", "allgather"} {
			bytes := int64(64 << 10)
			if op == "broadcast" {
				bytes = 1 << 20 // one buffer has to outweigh the control messages of all ranks
			}
			steps.next("%s on %s", op, spec)
			r, err := run(ctx, mustParse(spec), op, "mcast", bytes, 0)
			if err != nil {
				return nil, err
			}
			payload, total := overBoundBy(r, r.PayloadLinkBytes), overBoundBy(r, r.LinkBytes)
			o.Tables[0].Rows = append(o.Tables[0].Rows, []any{spec, op, bytes, r.MaxCrossings, payload, total})
			worst = max(worst, total-1)
			if r.MaxCrossings != 1 || payload != 1 || total > 1+overhead {
				o.Verdict = Miss
			}
		}
	}
	o.Ours = fmt.Sprintf("On %d networks, no chunk crosses a link twice, and the payload on all links is the lower "+
		"bound; headers and control add at most %.1f %%.", len(specs), 100*worst)
	return o, nil
}

func overBoundBy(r *sim.Result, bytes int64) float64 {
	return float64(bytes) / float64(r.LinkBytesBound)
}

// switchPorts is the entry of claim C10.
func switchPorts(ctx context.Context, e *Env) (*Outcome, error) {
	simulated, err := simulatedPorts(ctx, e)
	if err != nil {
		return nil, err
	}
	o := &Outcome{
		Verdict: Hit, Command: "allcast sim allgather --topology " + Testbed + " --algo mcast,ring --bytes 64K --json",
		Tables: []Table{{
			Name: "c10-ports", Title: "traffic at the ports of all switches",
			Columns: []string{"network", "operation", "algorithm", "bytes on all links", "over the minimum", "times multicast"},
		}},
	}
	for _, t := range simulated {
		if (t.Algo == "ring" || t.Algo == "knomial") && (t.Ratio < 1.5 || t.Ratio > 2) {
			o.Verdict = Miss
		}
	}
	o.Ours = "Simulated testbed: " + ratios(simulated) + "."
	all := simulated
	if e.Root {
		inLab, err := labPorts(ctx, e)
		if err != nil {
			return nil, err
		}
		all = append(all[:len(all):len(all)], inLab...)
		o.Measured = true
		o.Ours += fmt.Sprintf(" Lab, %s, with headers, control and joining: %s.", inLab[0].Network, ratios(inLab))
		o.Reason = "The lab of this run is smaller than the testbed; make figure12 builds all of it."
		for _, t := range inLab {
			switch {
			case t.Algo == "mcast":
			case t.Repaired:
				o.LeftOut = append(o.LeftOut, t.Op+" in the lab: datagrams were lost and fetched again, as on a busy machine")
			case t.Ratio < 1.5:
				o.Verdict = Miss
			}
		}
	} else {
		o.LeftOut = []string{"lab: needs root"}
	}
	for _, t := range all {
		o.Tables[0].Rows = append(o.Tables[0].Rows,
			[]any{t.Network, t.Op, t.Algo, t.Bytes, float64(t.Bytes) / t.Minimum, t.Ratio})
	}
	return o, nil
}

// ratios lists the traffic of point-to-point algorithms against multicast.
func ratios(all []portTraffic) string {
	var list []string
	for _, t := range all {
		if t.Algo != "mcast" {
			list = append(list, fmt.Sprintf("%s %s %.2f", t.Op, t.Algo, t.Ratio))
		}
	}
	return strings.Join(list, ", ") + " times the traffic of multicast"
}

func figure12(ctx context.Context, e *Env) (*Outcome, error) {
	o, err := switchPorts(ctx, e)
	if err != nil {
		return nil, err
	}
	f := figure.Figure{
		Title: "Traffic at the switch ports, over that of multicast",
		X:     figure.Axis{Label: "operation and algorithm"},
		Y:     figure.Axis{Label: "times the traffic of multicast"},
	}
	place := make(map[string]int) // on the X axis
	var series []figure.Series
	paper := figure.Series{Name: "paper, 1.5 to 2", Style: figure.Points, Paper: true}
	reduction := paperPoints("fig12", "reduction of traffic", figure.Points).Data
	for _, row := range o.Tables[0].Rows {
		network, op, algo, ratio := row[0].(string), row[1].(string), row[2].(string), row[5].(float64)
		if algo == "mcast" {
			continue
		}
		name := op + ", " + algo
		x, found := place[name]
		if !found {
			x = len(f.X.Names)
			place[name] = x
			f.X.Names = append(f.X.Names, name)
			p := reduction[0]
			if op == "allgather" {
				p = reduction[1]
			}
			p.X = float64(x)
			paper.Data = append(paper.Data, p)
		}
		title := "lab, " + network
		if network == Testbed {
			title = "simulated testbed"
		}
		if len(series) == 0 || series[len(series)-1].Name != title {
			series = append(series, figure.Series{Name: title, Style: figure.Bars})
		}
		last := &series[len(series)-1]
		last.Data = append(last.Data, figure.Point{X: float64(x), Y: ratio})
	}
	f.Series = append(series, paper)
	o.Tables[0].Name = "fig12-ports"
	o.Figures = []NamedFigure{{"fig12-ports", f}}
	return o, nil
}
