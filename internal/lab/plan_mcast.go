package lab

import (
	"net/netip"

	"github.com/allcast/allcast/internal/topology"
)

// Entry is an (S,G) entry of a switch: datagrams from Source to Group that arrive at port In leave
// by the ports Out. Datagrams that arrive at another port are dropped, so none can loop even if
// the tables are wrong.
type Entry struct {
	Source, Group netip.Addr
	In            int
	Out           []int
}

// Entries returns the multicast entries of all nodes, by topology.NodeID. Group i uses tree i.
// Trees use different spines as long as there are enough.
func (p *Plan) Entries() [][]Entry {
	entries := make([][]Entry, len(p.Nodes))
	ports := p.portsByLink()
	for i, g := range p.Groups {
		tree := p.Graph.Tree(i)
		for h := range p.Graph.Hosts {
			for _, l := range tree.Ports[h] {
				p.follow(entries, tree, ports, l, p.HostAddr(h), g.Addr())
			}
		}
	}
	return entries
}

// follow adds the entries for a datagram that arrives over link in.
func (p *Plan) follow(
	entries [][]Entry, tree *topology.Tree, ports []int, in topology.LinkID, source, group netip.Addr,
) {
	at := p.Graph.Links[in].To
	if p.Graph.IsHost(at) {
		return
	}
	back := p.Graph.Reverse(in)
	e := Entry{Source: source, Group: group, In: ports[back]}
	for _, l := range tree.Ports[at] {
		if l != back {
			e.Out = append(e.Out, ports[l])
		}
	}
	entries[at] = append(entries[at], e)
	for _, l := range tree.Ports[at] {
		if l != back {
			p.follow(entries, tree, ports, l, source, group)
		}
	}
}

// portsByLink returns the port by which each link leaves its node.
func (p *Plan) portsByLink() []int {
	ports := make([]int, len(p.Graph.Links))
	for _, n := range p.Nodes {
		for i, port := range n.Ports {
			ports[port.Out] = i
		}
	}
	return ports
}
