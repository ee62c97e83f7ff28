package lab

import (
	"net/netip"
	"slices"

	"github.com/allcast/allcast/internal/background"
)

// Flow is a flow of another job. It loads only the links between switches: its source and its sink are in leaves.
type Flow struct {
	From, To *Node
	Bursts   *background.Flow
}

func (p *Plan) findBackground() {
	for _, f := range p.Config.Background.Sources(p.Graph.Leaves()) {
		p.Background = append(p.Background, Flow{From: p.leaf(f.From), To: p.leaf(f.To), Bursts: f})
	}
}

// backgroundSinks returns the leaves at which flows end, in ascending order.
func (p *Plan) backgroundSinks() []*Node {
	var sinks []*Node
	for i := range p.Graph.Leaves() {
		if slices.ContainsFunc(p.Background, func(f Flow) bool { return f.To == p.leaf(i) }) {
			sinks = append(sinks, p.leaf(i))
		}
	}
	return sinks
}

// backgroundAddr returns the address at which flows to a leaf end. Leaves without hosts have one as well.
func (p *Plan) backgroundAddr(leaf *Node) netip.Addr {
	return address(backgroundNet + uint32(int(leaf.ID)-p.Graph.Hosts))
}

// ownAddrs returns the addresses of a switch that do not belong to a port.
func (p *Plan) ownAddrs(n *Node) (addrs []netip.Addr) {
	for _, a := range p.Aggregators {
		if a.Switch == n {
			addrs = append(addrs, a.Addr.Addr())
		}
	}
	if slices.Contains(p.backgroundSinks(), n) {
		addrs = append(addrs, p.backgroundAddr(n))
	}
	return addrs
}
