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
	w := p.newWalk(nil)
	for i, g := range p.Groups {
		w.tree = p.Graph.Tree(i)
		for h := range p.Graph.Hosts {
			for _, l := range w.tree.Ports[h] {
				w.follow(l, p.HostAddr(h), g.Addr())
			}
		}
	}
	return w.entries
}

// commNet holds the groups of communicators. Hosts join and leave them while a job runs, and their trees
// lead to the members only. Ranks that derive groups themselves take them from 239.192.0.0/14.
var commNet = netip.MustParsePrefix("239.196.0.0/16")

// MemberEntries returns the entries of a communicator's group with these members, by topology.NodeID. The
// groups of a communicator's subgroups follow each other, and so do their trees.
func (p *Plan) MemberEntries(group netip.Addr, members map[topology.NodeID]bool) [][]Entry {
	low := group.As4()
	w := p.newWalk(p.Graph.Tree(int(low[3]) % p.Graph.Trees()))
	w.members = members
	for h := range members {
		for _, l := range w.tree.Ports[h] {
			w.follow(l, p.HostAddr(int(h)), group)
		}
	}
	return w.entries
}

// treeWalk follows datagrams along a tree.
type treeWalk struct {
	plan    *Plan
	tree    *topology.Tree
	ports   []int                    // by link: the port by which it leaves its node
	members map[topology.NodeID]bool // nil: all hosts
	entries [][]Entry                // by node
}

func (p *Plan) newWalk(tree *topology.Tree) *treeWalk {
	return &treeWalk{plan: p, tree: tree, ports: p.portsByLink(), entries: make([][]Entry, len(p.Nodes))}
}

// follow adds the entries for a datagram that arrives over a link, and reports whether it reaches a member.
func (w *treeWalk) follow(in topology.LinkID, source, group netip.Addr) bool {
	g := w.plan.Graph
	at := g.Links[in].To
	if g.IsHost(at) {
		return w.members == nil || w.members[at]
	}
	back := g.Reverse(in)
	e := Entry{Source: source, Group: group, In: w.ports[back]}
	for _, l := range w.tree.Ports[at] {
		if l != back && w.follow(l, source, group) {
			e.Out = append(e.Out, w.ports[l])
		}
	}
	if len(e.Out) == 0 && w.members != nil {
		return false
	}
	w.entries[at] = append(w.entries[at], e)
	return true
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
