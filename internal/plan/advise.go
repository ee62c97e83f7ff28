package plan

import (
	"fmt"
	"strings"
)

// row returns the row of a pair, or nil.
func (p *Placed) row(pair string) *Row {
	for i := range p.Rows {
		if p.Rows[i].Algo == pair {
			return &p.Rows[i]
		}
	}
	return nil
}

// words for placements in sentences.
func placementWords(name string) string {
	kind, _, _ := strings.Cut(name, ":")
	switch kind {
	case "order":
		return "with ranks in order"
	case "random":
		return "with ranks at random"
	}
	return "with ranks as in " + name
}

// advise says in words what follows from the numbers.
func advise(p *Plan) []string {
	var advice []string
	for _, sentence := range []string{
		p.adviseBest(), p.adviseGather(), p.adviseSums(), p.advisePlacement(), p.adviseTraffic(),
	} {
		if sentence != "" {
			advice = append(advice, sentence)
		}
	}
	return advice
}

// adviseBest names the fastest pair.
func (p *Plan) adviseBest() string {
	worst := p.slowest()
	best := &worst.Rows[0]
	for i := range worst.Rows {
		if row := &worst.Rows[i]; row.Step.Value*1.005 < best.Step.Value {
			best = row
		}
	}
	if best.Speedup.Value < worthwhile {
		return "Rings are good enough: no other algorithm makes the step faster by 5 % or more."
	}
	return fmt.Sprintf("The fastest is %s: the step is %.2f times as fast as with rings, %s.",
		best.Algo, best.Speedup.Value, placementWords(worst.Placement))
}

// slowest returns the placement in which rings take the longest.
func (p *Plan) slowest() *Placed {
	worst := &p.Placed[0]
	for i := range p.Placed {
		if p.Placed[i].Rows[0].Step.Value > worst.Rows[0].Step.Value {
			worst = &p.Placed[i]
		}
	}
	return worst
}

// adviseGather says what multicast brings without special hardware.
func (p *Plan) adviseGather() string {
	gains := p.gains("mcast+ring", Baseline)
	if len(gains) == 0 {
		return ""
	}
	return fmt.Sprintf("Multicast for the Allgather alone (mcast+ring): the step is %s. It needs multicast in the "+
		"network, one multicast group per tree (%d per communicator), and no special hardware.",
		strings.Join(gains, ", "), p.Switches.Groups)
}

// gains compares two pairs in each placement.
func (p *Plan) gains(pair, other string) (words []string) {
	for i := range p.Placed {
		a, b := p.Placed[i].row(pair), p.Placed[i].row(other)
		if a != nil && b != nil {
			words = append(words, fmt.Sprintf("%.2f times as fast %s",
				b.Step.Value/a.Step.Value, placementWords(p.Placed[i].Placement)))
		}
	}
	return words
}

// adviseSums says what aggregators bring on top.
func (p *Plan) adviseSums() string {
	other, what := "mcast+ring", "Sums by aggregators on top of that"
	if p.Placed[0].row(other) == nil {
		other, what = Baseline, "Multicast and sums by aggregators"
	}
	gains := p.gains("mcast+inc", other)
	if len(gains) == 0 {
		return ""
	}
	return fmt.Sprintf("%s (mcast+inc): the step is %s. This needs %d aggregators, one at each switch of a tree.",
		what, strings.Join(gains, ", "), p.Switches.Aggregators)
}

// advisePlacement says what the placement of ranks costs.
func (p *Plan) advisePlacement() string {
	if len(p.Placed) < 2 {
		return ""
	}
	worst, first := p.slowest(), &p.Placed[0]
	var costs []string
	for i := range first.Rows {
		cost := worst.Rows[i].Step.Value / first.Rows[i].Step.Value
		costs = append(costs, fmt.Sprintf("%s %.2f", first.Rows[i].Algo, cost))
	}
	if worst == first {
		return "The placement of ranks does not make rings slower here."
	}
	return fmt.Sprintf("Placement: the step takes this many times as long %s as %s: %s.",
		placementWords(worst.Placement), placementWords(first.Placement), strings.Join(costs, ", "))
}

// adviseTraffic compares the bytes on links.
func (p *Plan) adviseTraffic() string {
	worst := p.slowest()
	base := total(worst.Rows[0].Tiers)
	var parts []string
	for i := range worst.Rows[1:] {
		row := &worst.Rows[i+1]
		parts = append(parts, fmt.Sprintf("%s %.0f %%", row.Algo, 100*total(row.Tiers)/base))
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("Bytes on all links, compared with rings %s: %s.",
		placementWords(worst.Placement), strings.Join(parts, ", "))
}

func total(tiers []Tier) float64 {
	sum := 0.0
	for _, t := range tiers {
		sum += t.Total
	}
	return sum
}

// largeDistance is the error of bounds in percent from which a plan warns.
const largeDistance = 15

// notes says what the numbers leave out.
func notes(p *Plan) []string {
	all := []string{
		"Packets are coarse in all simulations: 8 to 64 per shard for steps, 32 for an Allgather alone.",
		"Bytes are payload, without headers. Links are idle apart from the step: no other jobs share them.",
		"Routes are static: flows that meet on a link stay there. Adaptive routing would spread them.",
	}
	for i := range p.Placed {
		for _, row := range p.Placed[i].Rows {
			if row.Simulated.Distance > largeDistance {
				all = append(all, fmt.Sprintf("%s, placement %s: the busiest links of the simulated network differ by %.0f %% "+
					"from the real ones, so its times are rough.", row.Algo, p.Placed[i].Placement, row.Simulated.Distance))
			}
		}
	}
	for i := range p.Placed {
		for _, row := range p.Placed[i].Rows {
			if row.Simulated.Excess > 100*maxExcess {
				all = append(all, fmt.Sprintf("%s, placement %s: hosts moved %.0f %% more bytes than planned, because ranks "+
					"repaired data or fell back from aggregators.", row.Algo, p.Placed[i].Placement, row.Simulated.Excess))
			}
		}
	}
	// A ring has as many steps as ranks, and a similar network has fewer.
	latency := 1e-3 * p.Network.LatencyUS * 4 * float64(p.Network.Hosts-1)
	wire := float64(p.Model.LayerBytes) * 8 / (p.Network.RateGbit * 1e6)
	if row := &p.Placed[0].Rows[0]; row.Simulated.Hosts < p.Network.Hosts && latency > wire/4 {
		all = append(all, fmt.Sprintf("Layers are so small that the latency of a ring's %d steps (%.2g ms) matters; the "+
			"simulated ring has %d, so rings are slower than shown.", p.Network.Hosts-1, latency, row.Simulated.Hosts-1))
	}
	return all
}
