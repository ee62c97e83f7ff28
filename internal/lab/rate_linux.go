package lab

import (
	"math"

	"github.com/vishvananda/netlink"

	"github.com/allcast/allcast/internal/units"
)

// rate returns the rate of a port in bytes per second; 0 means unlimited. Links between switches have the multiple of
// the topology, which includes oversubscription.
func (p *Plan) rate(n *Node, port *Port) uint64 {
	r := p.Config.Rate
	if n.Host {
		r = p.Config.UpRate
	}
	return uint64(math.Round(float64(r) * port.Multiple / 8))
}

const (
	// The time that a queue may catch up with, because a busy machine serves it late.
	burstMillis = 4
)

// shaper is a token bucket filter.
func shaper(index int, rate uint64, queue units.Size) *netlink.Tbf {
	burst := uint32(min(max(PortBurst, rate*burstMillis/1000), math.MaxUint32/4))
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       rate,
		Limit:      uint32(queue),
		// In the kernel's clock ticks. One microsecond is added because the result is rounded down.
		Buffer: netlink.Xmittime(rate, burst) + uint32(netlink.TickInUsec()) + 1,
	}
}
