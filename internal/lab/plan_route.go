package lab

import (
	"net/netip"
	"slices"

	"github.com/allcast/allcast/internal/topology"
)

// Route is a unicast route of a switch, over one or more ports.
type Route struct {
	Dst   netip.Prefix // the zero prefix is the default route
	Ports []int
}

// findBelow lists the leaves below each switch. Cables are ordered by level, so the leaves below
// a cable's lower end are already known.
func (p *Plan) findBelow() {
	p.below = make([][]topology.NodeID, len(p.Nodes))
	for c := range len(p.Graph.Links) / 2 {
		l := p.Graph.Links[2*c]
		if c < p.Graph.Hosts {
			if len(p.below[l.To]) == 0 {
				p.below[l.To] = []topology.NodeID{l.To}
			}
			continue
		}
		p.below[l.To] = append(p.below[l.To], p.below[l.From]...)
	}
}

// Routes returns a switch's routes as a routing protocol would find them while the cables in cut
// are down; cut may be nil. A route without ports marks a leaf as unreachable, so that senders
// get an error instead of waiting.
func (p *Plan) Routes(n *Node, cut func(cable int) bool) (routes []Route) {
	if cut == nil {
		cut = func(int) bool { return false }
	}
	all := p.towards(n, true, cut, func(topology.NodeID) bool { return true })
	if len(all) > 0 {
		routes = append(routes, Route{Ports: all})
	}
	add := func(dst netip.Prefix, at topology.NodeID) {
		if ports := p.portsTo(n, at, cut); len(ports) == 0 || !slices.Equal(ports, all) { // unlike the default route
			routes = append(routes, Route{Dst: dst, Ports: ports})
		}
	}
	for _, s := range p.switches() {
		leaf := s.ID
		if len(p.below[leaf]) != 1 || p.below[leaf][0] != leaf {
			continue // no leaf, or one without hosts
		}
		if leaf == n.ID {
			// The default route must not lead to a host that is cut off.
			routes = append(routes, Route{Dst: p.leafNet(leaf)})
			continue
		}
		add(p.leafNet(leaf), leaf)
	}
	for _, a := range p.Aggregators {
		if a.Switch != n { // otherwise the address is its own
			add(netip.PrefixFrom(a.Addr.Addr(), 32), a.Switch.ID)
		}
	}
	for _, leaf := range p.backgroundSinks() {
		if leaf != n {
			add(netip.PrefixFrom(p.backgroundAddr(leaf), 32), leaf.ID)
		}
	}
	return routes
}

// portsTo lists the ports over which packets reach another switch: down if possible.
func (p *Plan) portsTo(n *Node, dst topology.NodeID, cut func(int) bool) []int {
	below := func(peer topology.NodeID) bool { return p.reaches(peer, dst, false, cut) }
	if ports := p.towards(n, false, cut, below); len(ports) > 0 {
		return ports
	}
	// Only to a switch above with a path down: a packet does not go up again from there.
	return p.towards(n, true, cut, func(peer topology.NodeID) bool { return p.reaches(peer, dst, true, cut) })
}

// towards lists the ports that lead up, or down, to a suitable node.
func (p *Plan) towards(n *Node, up bool, cut func(int) bool, ok func(topology.NodeID) bool) (ports []int) {
	for i, port := range n.Ports {
		if port.Up == up && !cut(cable(port.Out)) && ok(port.Peer) {
			ports = append(ports, i)
		}
	}
	return ports
}

// reaches reports whether a packet at node at can reach a switch. up means that the packet has only
// gone up so far and may continue up.
func (p *Plan) reaches(at, dst topology.NodeID, up bool, cut func(int) bool) bool {
	if at == dst {
		return true
	}
	if p.Graph.IsHost(at) {
		return false
	}
	for _, port := range p.Nodes[at].Ports {
		if (!port.Up || up) && !cut(cable(port.Out)) && p.reaches(port.Peer, dst, port.Up, cut) {
			return true
		}
	}
	return false
}

func cable(l topology.LinkID) int { return int(l) / 2 }
