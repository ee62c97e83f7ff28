package lab

import (
	"math"

	"github.com/vishvananda/netlink"

	"github.com/allcast/allcast/internal/units"
)

// rate returns at how many bytes a second a port sends; 0: as fast as it can. Links
// between switches are as much faster as makes the tree non-blocking.
func (p *Plan) rate(n *Node, port *Port) uint64 {
	r := p.Config.Rate
	if n.Host {
		r = p.Config.UpRate
	}
	return uint64(math.Round(float64(r) * port.Multiple / 8))
}

const (
	// A packet above its burst tbf cuts into datagrams, or drops; 64 KiB super-packets
	// are to travel whole. They count with all the headers that they will have.
	minBurst = 128 << 10
	// A busy machine may look after a queue late; what it may then catch up with.
	burstMillis = 4
)

// shaper is a token bucket filter.
func shaper(index int, rate uint64, queue units.Size) *netlink.Tbf {
	burst := uint32(min(max(minBurst, rate*burstMillis/1000), math.MaxUint32/4))
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       rate,
		Limit:      uint32(queue),
		// In the kernel's clock ticks. One microsecond more: it is rounded down.
		Buffer: netlink.Xmittime(rate, burst) + uint32(netlink.TickInUsec()) + 1,
	}
}
