package lab

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/offload/napi"
)

// ports gives a node's interfaces their address, neighbour and rate, and sets them up.
func (b *builder) ports(n *Node) error {
	if err := b.indexes(n); err != nil {
		return err
	}
	nl := b.nl[n.ID]
	if err := nl.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 1}}); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	for _, addr := range b.plan.ownAddrs(n) {
		lo := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 1}}
		if err := nl.AddrAdd(lo, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(addr, 32))}); err != nil {
			return fmt.Errorf("address %v: %w", addr, err)
		}
	}
	for i, port := range n.Ports {
		if err := b.port(n, i); err != nil {
			return fmt.Errorf("port %s: %w", port.Name, err)
		}
	}
	return nil
}

func (b *builder) port(n *Node, i int) error {
	port, nl, link := n.Ports[i], b.nl[n.ID], b.link(n.ID, i)
	// A /31 has no broadcast address; netlink would invent one.
	addr := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(port.Addr, 31)), Broadcast: net.IPv4zero}
	if err := nl.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("address %v: %w", port.Addr, err)
	}
	if rate := b.plan.rate(n, port); rate > 0 {
		if err := nl.QdiscReplace(shaper(b.index[n.ID][i], rate, b.plan.Config.Queue)); err != nil {
			return fmt.Errorf("rate of %d bytes/s: %w", rate, err)
		}
	}
	if b.loss.host != nil {
		if err := b.lossy(n, i); err != nil {
			return err
		}
	}
	if b.plan.Config.Threads && !n.Host && b.plan.Graph.IsHost(port.Peer) {
		if err := b.cutTCP(n, port.Name); err != nil {
			return err
		}
	}
	if err := nl.LinkSetUp(link); err != nil {
		return fmt.Errorf("turn on: %w", err)
	}
	return b.neighbour(n, i)
}

// cutTCP makes a port send single TCP packets. Otherwise the other end of the veth processes
// forwarded super-packets directly instead of in its threads.
func (b *builder) cutTCP(n *Node, port string) error {
	return inNamespace(b.plan.Namespace(n), func() error {
		for _, what := range []string{
			"tx-tcp-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation", "tx-tcp6-segmentation",
		} {
			if err := napi.Feature(port, what, false); err != nil {
				return err
			}
		}
		return nil
	})
}

// neighbour adds a static entry for the other end: ARP packets would show up in the counters, and
// could be lost.
func (b *builder) neighbour(n *Node, i int) error {
	port := n.Ports[i]
	return annotate(b.nl[n.ID].NeighSet(&netlink.Neigh{
		LinkIndex: b.index[n.ID][i], Family: unix.AF_INET, State: netlink.NUD_PERMANENT,
		IP: port.PeerAddr.AsSlice(), HardwareAddr: port.PeerMAC,
	}), "neighbour %v", port.PeerAddr)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}
}
