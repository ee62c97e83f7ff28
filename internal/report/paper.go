package report

import "slices"

// The paper's numbers for its own testbed (Figure 12, claim C10).
const (
	paperNetwork = "fat-tree:188,12,6"
	paperBytes   = 64 << 10
	paperSaving  = "1.5× to 2× less traffic"
	paperSetting = "188 nodes, 18 switches, 64 KiB, counted at the switch ports"
)

// paperView holds the paper's numbers and ours.
type paperView struct {
	Setting, Saving, Mcast string
	Bytes                  string // "" if they equal the paper's
	Rows                   []savingRow
}

// savingRow is a run's bytes as multiples of the multicast run's.
type savingRow struct{ Name, Links, Ports string }

// paper returns nil if the runs cannot be compared with the paper: another network, placement or operation,
// or no pair of a multicast run and another one.
func (p *Page) paper(t *tiers) *paperView {
	mcast := slices.IndexFunc(p.Runs, func(r Run) bool { return r.Multicast })
	if p.Graph.Name != paperNetwork || !p.Graph.InOrder() || (p.Op != "broadcast" && p.Op != "allgather") || mcast < 0 {
		return nil
	}
	links, ports := p.Runs[mcast].total(), t.atPorts(&p.Runs[mcast])
	if links == 0 {
		return nil
	}
	v := &paperView{Setting: paperSetting, Saving: paperSaving, Mcast: p.Runs[mcast].Name}
	if p.Bytes != paperBytes {
		v.Bytes = exact(p.Bytes)
	}
	for i := range p.Runs {
		if r := &p.Runs[i]; !r.Multicast {
			v.Rows = append(v.Rows, savingRow{
				Name:  r.Name,
				Links: ratio(r.total(), links),
				Ports: ratio(t.atPorts(r), ports),
			})
		}
	}
	if len(v.Rows) == 0 {
		return nil
	}
	return v
}

// atPorts sums the counters of all switch ports in both directions. A cable between switches
// counts at both ends.
func (t *tiers) atPorts(r *Run) (n uint64) {
	for id, link := range t.g.Links {
		n += r.LinkBytes[id]
		if !t.g.IsHost(link.From) && !t.g.IsHost(link.To) {
			n += r.LinkBytes[id]
		}
	}
	return n
}
