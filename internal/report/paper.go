package report

import "slices"

// What the paper reports of its own testbed (Figure 12, claim C10).
const (
	paperNetwork = "fat-tree:188,12,6"
	paperBytes   = 64 << 10
	paperSaving  = "1.5× to 2× less traffic"
	paperSetting = "188 nodes, 18 switches, 64 KiB, counted at the switch ports"
)

// paperView is the paper's numbers and ours.
type paperView struct {
	Setting, Saving, Mcast string
	Bytes                  string // "" where they are the paper's
	Rows                   []savingRow
}

// savingRow is how many times the multicast run's bytes another run has.
type savingRow struct{ Name, Links, Ports string }

// paper is nil where the two do not compare: another network or operation, or no
// multicast run with another one beside it.
func (p *Page) paper(t *tiers) *paperView {
	mcast := slices.IndexFunc(p.Runs, func(r Run) bool { return r.Multicast })
	if p.Graph.Name != paperNetwork || (p.Op != "broadcast" && p.Op != "allgather") || mcast < 0 {
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
				Name: r.Name, Links: times(float64(r.total()) / float64(links)), Ports: times(float64(t.atPorts(r)) / float64(ports)),
			})
		}
	}
	if len(v.Rows) == 0 {
		return nil
	}
	return v
}

// atPorts sums up what the ports of all switches count, both directions: what is on
// a cable between switches is counted at both its ends.
func (t *tiers) atPorts(r *Run) (n uint64) {
	for id, link := range t.g.Links {
		n += r.LinkBytes[id]
		if !t.g.IsHost(link.From) && !t.g.IsHost(link.To) {
			n += r.LinkBytes[id]
		}
	}
	return n
}
