package lab

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
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
		n, i = l.Plan.Nodes[n.Ports[i].Peer], n.Ports[i].PeerPort
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
	port := n.Ports[i]
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
		return nil, 0, configError("there is no %q: there are %s, and switches from %s to %s", node,
			p.hostNames(), p.Nodes[p.Graph.Hosts].Name, p.Nodes[len(p.Nodes)-1].Name)
	}
	if n.Host && port == "" {
		return n, 0, nil
	}
	var names []string
	for i, p := range n.Ports {
		if p.Name == port {
			return n, i, nil
		}
		names = append(names, p.Name)
	}
	return nil, 0, configError("%s has no port %q: it has %v", n.Name, port, names)
}

// hostNames lists the hosts for users.
func (p *Plan) hostNames() string {
	if p.Config.Placement == nil {
		return fmt.Sprintf("host0 to host%d", p.Graph.Hosts-1)
	}
	var names []string
	for _, n := range p.Nodes[:p.Graph.Hosts] {
		names = append(names, n.Name)
	}
	return strings.Join(names, ", ") + " (in the order of their ranks)"
}

// builder returns a builder for a lab that is up.
func (l *Lab) builder() (*builder, error) {
	b := newBuilder(l.Plan)
	for _, n := range l.Plan.Nodes {
		err := b.open(n)
		if err == nil {
			err = b.indexes(n)
		}
		if err != nil {
			b.close()
			return nil, fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	return b, nil
}

// reroute replaces the routes of all switches by routes around the cut cables.
func (b *builder) reroute() error {
	p := b.plan
	down := make([]bool, len(p.Graph.Links)/2)
	for _, n := range p.switches() {
		links, err := b.nl[n.ID].LinkList()
		if err != nil {
			return err
		}
		up := make(map[int]bool, len(links))
		for _, l := range links {
			up[l.Attrs().Index] = l.Attrs().Flags&net.FlagUp != 0
		}
		for i, port := range n.Ports {
			if !up[b.index[n.ID][i]] {
				down[cable(port.Out)] = true
			}
		}
	}
	for _, n := range p.switches() {
		routes := p.Routes(n, func(c int) bool { return down[c] })
		if err := errors.Join(b.route(n, routes), b.prune(n.ID, routes)); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	return nil
}
