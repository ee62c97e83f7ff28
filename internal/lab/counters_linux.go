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
	for _, n := range p.Nodes {
		if n.Host && p.Config.Loss == 0 && p.Config.LossAll == 0 && p.Config.Rate == 0 && p.Config.UpRate == 0 {
			continue
		}
		var ports []Counting
		if !n.Host {
			ports = c.Ports[next : next+len(n.Ports)]
			next += len(n.Ports)
		}
		if err := inNamespace(p.Namespace(n), func() error { return c.count(ports) }); err != nil {
			return nil, fmt.Errorf("counters of %s: %w", n.Name, err)
		}
	}
	c.total()
	if len(p.Background) > 0 {
		var err error
		if c.BackgroundBytes, err = readBackground(p.Config.Name); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// count reads the counters of a node in the namespace of the calling thread: the drops of its queues and filters,
// and the ports of a switch.
func (c *Counters) count(ports []Counting) error {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer nl.Close()
	queues, err := nl.QdiscList(nil)
	if err != nil {
		return err
	}
	for _, q := range queues {
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
	if len(ports) == 0 {
		return nil
	}
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
		if err := p.readVIF(fd, i); err != nil {
			return err
		}
	}
	return nil
}
