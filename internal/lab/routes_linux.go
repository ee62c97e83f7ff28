package lab

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/topology"
)

// labProtocol marks the lab's routes, as RTPROT_STATIC marks an administrator's.
const labProtocol = netlink.RouteProtocol(unix.RTPROT_STATIC)

func (b *builder) routes(n *Node) error {
	if n.Host {
		return b.route(n, []Route{{Ports: []int{0}}}) // the default route to its leaf
	}
	return b.route(n, b.plan.Routes(n, nil))
}

// route sets a node's unicast routes and replaces older ones.
func (b *builder) route(n *Node, routes []Route) error {
	for _, r := range routes {
		if err := b.nl[n.ID].RouteReplace(b.netlinkRoute(n, r)); err != nil {
			return fmt.Errorf("route to %v: %w", r.Dst, err)
		}
	}
	return nil
}

func destination(r Route) *net.IPNet {
	if r.Dst.IsValid() {
		return ipNet(r.Dst)
	}
	return &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
}

func (b *builder) netlinkRoute(n *Node, r Route) *netlink.Route {
	route := &netlink.Route{Dst: destination(r), Family: unix.AF_INET, Protocol: labProtocol}
	switch len(r.Ports) {
	case 0:
		route.Type = unix.RTN_UNREACHABLE
	case 1:
		route.LinkIndex, route.Gw = b.index[n.ID][r.Ports[0]], n.Ports[r.Ports[0]].PeerAddr.AsSlice()
	default:
		for _, i := range r.Ports {
			hop := &netlink.NexthopInfo{LinkIndex: b.index[n.ID][i], Gw: n.Ports[i].PeerAddr.AsSlice()}
			route.MultiPath = append(route.MultiPath, hop)
		}
	}
	return route
}

// prune removes the lab's earlier routes that are not in the new set.
func (b *builder) prune(n topology.NodeID, routes []Route) error {
	list, err := b.nl[n].RouteListFiltered(unix.AF_INET, &netlink.Route{Protocol: labProtocol}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	keep := make(map[string]bool, len(routes))
	for _, r := range routes {
		keep[destination(r).String()] = true
	}
	for i := range list {
		if keep[list[i].Dst.String()] {
			continue
		}
		if err := b.nl[n].RouteDel(&list[i]); err != nil {
			return fmt.Errorf("remove the route to %v: %w", list[i].Dst, err)
		}
	}
	return nil
}
