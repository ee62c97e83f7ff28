package lab

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Counters reads the ports of all switches, and the losses at hosts.
func (l *Lab) Counters() (*Counters, error) {
	p := l.Plan
	c := p.newCounters()
	next := 0
	for n := range p.Nodes {
		node := &p.Nodes[n]
		if node.Host && p.Config.Loss == 0 && p.Config.LossAll == 0 && p.Config.Rate == 0 && p.Config.UpRate == 0 {
			continue
		}
		var ports []Counting
		if !node.Host {
			ports = c.Ports[next : next+len(node.Ports)]
			next += len(node.Ports)
		}
		err := inNamespace(p.Namespace(node), func() error {
			if err := c.queues(); err != nil || node.Host {
				return err
			}
			return count(ports)
		})
		if err != nil {
			return nil, fmt.Errorf("counters of %s: %w", node.Name, err)
		}
	}
	c.total()
	return c, nil
}

// count reads a switch's counters, in the namespace of the calling thread.
func count(ports []Counting) error {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer nl.Close()
	links, err := nl.LinkList()
	if err != nil {
		return err
	}
	stats := make(map[string]*netlink.LinkStatistics, len(links))
	for _, link := range links {
		stats[link.Attrs().Name] = link.Attrs().Statistics
	}
	fd, err := openIGMP()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	for i := range ports {
		p := &ports[i]
		s := stats[p.Port]
		if s == nil {
			return fmt.Errorf("port %s is gone", p.Port)
		}
		p.Rx, p.Tx, p.RxPackets, p.TxPackets = s.RxBytes, s.TxBytes, s.RxPackets, s.TxPackets
		v, err := countVIF(fd, i)
		if err != nil {
			return err
		}
		p.McastRx, p.McastTx = payload(v.in, v.inBytes), payload(v.out, v.outBytes)
	}
	return nil
}

// queues adds the drops of queues and filters in the calling thread's namespace.
func (c *Counters) queues() error {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer nl.Close()
	list, err := nl.QdiscList(nil)
	if err != nil {
		return err
	}
	for _, q := range list {
		s := q.Attrs().Statistics
		if s == nil || s.Queue == nil {
			continue
		}
		switch q.Type() {
		case "clsact":
			c.Lost += uint64(s.Queue.Drops)
		case "tbf":
			c.Dropped += uint64(s.Queue.Drops)
		}
	}
	return nil
}
