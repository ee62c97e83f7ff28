package lab

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/allcast/allcast/internal/topology"
)

// SetLink cuts or restores a cable, given one of its ends: a host, or a switch and a port. It
// then routes unicast around all cut cables, as a routing protocol would; multicast trees do not
// change.
func (l *Lab) SetLink(node, port string, up bool) error {
	n, i, err := l.Plan.port(node, port)
	if err != nil {
		return err
	}
	b, err := l.builder()
	if err != nil {
		return err
	}
	defer b.close()
	if n.Host {
		// At the leaf's end, because a host would lose its route.
		n, i = &l.Plan.Nodes[n.Ports[i].Peer], n.Ports[i].PeerPort
	}
	set := b.nl[n.ID].LinkSetDown
	if up {
		set = b.nl[n.ID].LinkSetUp
	}
	if err := set(b.link(n.ID, i)); err != nil {
		return fmt.Errorf("%s of %s: %w", n.Ports[i].Name, n.Name, err)
	}
	if up {
		// The kernel has dropped it.
		if err := b.neighbour(n, i); err != nil {
			return err
		}
	}
	if err := b.settle(n, i, up); err != nil {
		return err
	}
	return b.reroute()
}

// settle waits until both ends have noticed the change: the kernel reports a carrier to its
// routing at most once per second (linkwatch).
func (b *builder) settle(n *Node, i int, up bool) error {
	port := &n.Ports[i]
	for limit := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		ours, err := b.nl[n.ID].LinkByIndex(b.index[n.ID][i])
		if err != nil {
			return err
		}
		theirs, err := b.nl[port.Peer].LinkByIndex(b.index[port.Peer][port.PeerPort])
		if err != nil {
			return err
		}
		a, z := ours.Attrs().OperState, theirs.Attrs().OperState
		if (a == netlink.OperUp) == up && (z == netlink.OperUp) == up || up && theirs.Attrs().Flags&net.FlagUp == 0 {
			return nil // or the other end was cut separately
		}
		if time.Now().After(limit) {
			return fmt.Errorf("%s of %s is %v, and the other end %v", port.Name, n.Name, a, z)
		}
	}
}

// port finds a port by the names of its node and its peer.
func (p *Plan) port(node, port string) (*Node, int, error) {
	n := p.Find(node)
	if n == nil {
		return nil, 0, configError("there is no %q: there are host0 to host%d, and switches from %s to %s", node,
			p.Graph.Hosts-1, p.Nodes[p.Graph.Hosts].Name, p.Nodes[len(p.Nodes)-1].Name)
	}
	if n.Host && port == "" {
		return n, 0, nil
	}
	var names []string
	for i := range n.Ports {
		if n.Ports[i].Name == port {
			return n, i, nil
		}
		names = append(names, n.Ports[i].Name)
	}
	return nil, 0, configError("%s has no port %q: it has %v", n.Name, port, names)
}

// builder returns a builder for a lab that is up.
func (l *Lab) builder() (*builder, error) {
	b := newBuilder(l.Plan)
	for n := range l.Plan.Nodes {
		node := &l.Plan.Nodes[n]
		if err := b.open(node); err != nil {
			b.close()
			return nil, fmt.Errorf("%s: %w", node.Name, err)
		}
		if err := b.indexes(node); err != nil {
			b.close()
			return nil, fmt.Errorf("%s: %w", node.Name, err)
		}
	}
	return b, nil
}

// reroute replaces the routes of all switches by routes around the cut cables.
func (b *builder) reroute() error {
	p := b.plan
	down := make([]bool, len(p.Graph.Links)/2)
	for n := p.Graph.Hosts; n < len(p.Nodes); n++ {
		links, err := b.nl[n].LinkList()
		if err != nil {
			return err
		}
		up := make(map[int]bool, len(links))
		for _, l := range links {
			up[l.Attrs().Index] = l.Attrs().Flags&net.FlagUp != 0
		}
		for i := range p.Nodes[n].Ports {
			if !up[b.index[n][i]] {
				down[cable(p.Nodes[n].Ports[i].Out)] = true
			}
		}
	}
	for n := p.Graph.Hosts; n < len(p.Nodes); n++ {
		routes := p.Routes(&p.Nodes[n], func(c int) bool { return down[c] })
		if err := errors.Join(b.route(&p.Nodes[n], routes), b.prune(topology.NodeID(n), routes)); err != nil {
			return fmt.Errorf("%s: %w", p.Nodes[n].Name, err)
		}
	}
	return nil
}
