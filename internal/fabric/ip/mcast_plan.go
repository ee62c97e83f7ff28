package ip

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

const (
	mcastReceiveBuffer = 8 << 20
	mcastTTL           = 16 // across a few routers: a fat-tree has at most six hops
)

// mcastPlan is a validated McastConfig with defaults.
type mcastPlan struct {
	McastConfig
	v6   bool
	head int // bytes of a datagram's header
	cut  int // size of the packets of a long chunk; 0: each chunk fits one packet

	noComms error // reason why this machine's sockets cannot join the groups of communicators
}

func (p *mcastPlan) packets() int {
	if p.cut == 0 {
		return 1
	}
	return (p.head + p.Chunk + p.cut - 1) / p.cut
}

// batch is the number of chunks per super-packet. A long chunk fills one alone.
func (p *mcastPlan) batch() int {
	if p.cut > 0 {
		return 1
	}
	return max(1, min(mcastMaxSuper/(p.head+p.Chunk), mcastMaxSegments))
}

// capabilities are those that the plan decides, for a receive buffer and the charge of a chunk to it.
func (p *mcastPlan) capabilities(batch, buffer, charge int) fabric.Capabilities {
	return fabric.Capabilities{
		Chunk: p.Chunk, Batch: batch, Room: mcastRoom(buffer, charge), Header: p.head, Local: p.loopback(), Eager: true,
		// Loopback counts as if it were Ethernet, so that numbers can be compared.
		Overhead: (ethernet+mcastIPHeader(p.v6)+udpHeader)*p.packets() + p.head,
	}
}

// short is the plan for chunks that fit a packet.
func (p *mcastPlan) short() *mcastPlan {
	if p.cut == 0 {
		return p
	}
	q := *p
	q.Chunk, q.cut = p.cut-p.head, 0
	return &q
}

// newMcastPlan checks everything that can be checked without a socket. The kernel would only return
// EINVAL, or fail silently.
func newMcastPlan(cfg McastConfig) (*mcastPlan, error) {
	p := &mcastPlan{McastConfig: cfg, head: wire.HeaderSize}
	if cfg.Sums {
		p.head += wire.SumSize
	}
	if cfg.Interface == nil {
		return nil, errors.New("multicast: no interface chosen; name one, so that nothing leaves by the default route")
	}
	if p.Subgroups == 0 {
		p.Subgroups = len(p.Groups)
	}
	p.Local = cfg.Local.Unmap()
	p.v6 = p.Local.Is6()
	if err := cmp.Or(p.checkInterface(), p.checkGroups(), p.checkSizes()); err != nil {
		return nil, err
	}
	if p.TTL == 0 {
		p.TTL = mcastTTL
		if p.loopback() {
			p.TTL = 1
		}
	}
	if p.ReceiveBuffer == 0 {
		p.ReceiveBuffer = mcastReceiveBuffer
	}
	return p, nil
}

func (p *mcastPlan) loopback() bool { return p.Interface.Flags&net.FlagLoopback != 0 }

// wildcard is the address of all interfaces.
func (p *mcastPlan) wildcard() netip.Addr {
	if p.v6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

func (p *mcastPlan) checkInterface() error {
	ifc := p.Interface
	if ifc.Flags&net.FlagUp == 0 {
		return fmt.Errorf("multicast: interface %s is down; bring it up (ip link set %s up) or choose another", ifc.Name,
			ifc.Name)
	}
	// Linux does not flag lo, but it carries multicast between local sockets.
	if ifc.Flags&(net.FlagMulticast|net.FlagLoopback) == 0 {
		return fmt.Errorf("multicast: interface %s does not do multicast; choose another, or allow it (ip "+
			"link set %s multicast on)", ifc.Name, ifc.Name)
	}
	addrs, err := ifc.Addrs()
	if err != nil {
		return fmt.Errorf("multicast: addresses of interface %s: %w", ifc.Name, err)
	}
	if slices.ContainsFunc(addrs, p.isLocal) {
		return nil
	}
	return fmt.Errorf("multicast: %v is not an address of interface %s, which has %v; choose one of "+
		"these or another interface", p.Local, ifc.Name, addrs)
}

// isLocal reports whether an address of the interface is the local one. All of 127.0.0.0/8 is local, not
// only the interface's address.
func (p *mcastPlan) isLocal(a net.Addr) bool {
	local := p.Local.AsSlice()
	n, ok := a.(*net.IPNet)
	return ok && (n.IP.Equal(local) || p.loopback() && p.Local.Is4() && n.Contains(local))
}

func (p *mcastPlan) checkGroups() error {
	if len(p.Groups) == 0 {
		return errors.New("multicast: no groups; there must be one per subgroup")
	}
	if p.Subgroups < 1 || len(p.Groups)%p.Subgroups != 0 {
		return fmt.Errorf("multicast: %d groups for %d subgroups: each needs the same number of streams",
			len(p.Groups), p.Subgroups)
	}
	seen := make(map[netip.AddrPort]bool)
	for t, g := range p.Groups {
		switch first := p.Groups[t%p.Subgroups]; {
		case g.Addr() != first.Addr():
			return fmt.Errorf("multicast: a subgroup with the groups %v and %v: its streams share an address", first, g)
		case !g.Addr().IsMulticast():
			return fmt.Errorf("multicast: %v is not a multicast group; take one of 239.0.0.0/8 or ff00::/8", g)
		case g.Addr().Is6() != p.v6:
			return fmt.Errorf("multicast: group %v and local address %v are not of the same IP version", g, p.Local)
		case g.Port() == 0:
			return fmt.Errorf("multicast: group %v has no port", g)
		case seen[g]:
			return fmt.Errorf("multicast: two streams have group %v; each needs its own", g)
		}
		seen[g] = true
	}
	return nil
}

func (p *mcastPlan) checkSizes() error {
	fits := max(0, MaxPayload(p.Interface.MTU, p.v6)-(p.head-wire.HeaderSize))
	switch {
	case fits == 0:
		return fmt.Errorf("multicast: the MTU of interface %s is %d, too small for any payload", p.Interface.Name,
			p.Interface.MTU)
	case p.Chunk == 0:
		p.Chunk = fits
	case p.Packet > 0 && p.Chunk > min(fits, p.Packet) && !p.PlainSockets:
		// A receiver merges packets of one size until a shorter one comes. A chunk that ends with a full
		// packet would be merged with the next one.
		if p.cut = p.head + min(fits, p.Packet); (p.head+p.Chunk)%p.cut == 0 {
			p.cut--
		}
		if p.head+p.Chunk > mcastMaxLong || p.packets() > mcastMaxSegments {
			return fmt.Errorf("multicast: a chunk of %d bytes does not fit a super-packet by interface %s, "+
				"with its MTU of %d: at most %d do",
				p.Chunk, p.Interface.Name, p.Interface.MTU, min(mcastMaxLong, mcastMaxSegments*p.cut)-p.head)
		}
	case p.Chunk < 0 || p.Chunk > fits:
		return fmt.Errorf("multicast: a chunk of %d bytes does not fit interface %s: its MTU of %d takes "+
			"at most %d; agree on a smaller chunk or raise the MTU",
			p.Chunk, p.Interface.Name, p.Interface.MTU, fits)
	}
	if p.TTL < 0 || p.TTL > 255 {
		return fmt.Errorf("multicast: a TTL of %d; it must be from 1 to 255", p.TTL)
	}
	if p.DSCP < 0 || p.DSCP > 63 {
		return fmt.Errorf("multicast: a DSCP of %d; it must be from 0 to 63", p.DSCP)
	}
	if p.ReceiveBuffer < 0 || p.ReceiveBuffer > 1<<30 {
		return fmt.Errorf("multicast: a receive buffer of %d bytes; it must be from 1 to 2^30", p.ReceiveBuffer)
	}
	return nil
}
