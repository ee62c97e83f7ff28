package ip

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/allcast/allcast/internal/fabric"
)

// openPortable opens plain sockets of the standard library, which every system has: one datagram per
// call, and one copy on each side.
func openPortable(p *mcastPlan) (*Multicast, error) {
	ports := make(map[uint16]bool)
	m := &Multicast{subgroups: p.Subgroups}
	if p.cut > 0 {
		return nil, fmt.Errorf("multicast: chunks of several packets need Linux and its super-packets; "+
			"use chunks of at most %d bytes", p.cut-p.head)
	}
	buffer := p.ReceiveBuffer
	for _, g := range p.Groups {
		// The standard library binds to the wildcard address, so only ports distinguish groups.
		if ports[g.Port()] {
			return nil, fmt.Errorf("multicast: two streams have port %d; here each needs its own", g.Port())
		}
		ports[g.Port()] = true
		s, err := newPortableSender(p, g)
		if err != nil {
			_ = m.Close() // the first error matters
			return nil, err
		}
		m.senders = append(m.senders, s)
		r, err := newPortableReceiver(p, g, s.own)
		if err != nil {
			_ = m.Close() // the first error matters
			return nil, err
		}
		m.receivers = append(m.receivers, r)
		buffer = r.buffer
	}
	m.caps = p.capabilities(1, buffer, FrameCharge(p.Chunk+p.head+udpHeader+mcastIPHeader(p.v6)))
	m.giveGroups(p)
	const none = "plain sockets"
	f := Features{
		Sockets:   mcastPortable,
		GSOReason: none, GROReason: none, FilterReason: none,
		RecvBufferWanted: p.ReceiveBuffer, RecvBufferGot: buffer,
	}
	m.features = func() Features { return f }
	return m, nil
}

// udpPortableSender copies header and payload into one buffer and sends it.
type udpPortableSender struct {
	mcastRoutes[netip.AddrPort]
	group netip.AddrPort
	zone  string // name of the interface
	own   netip.AddrPort
	chunk int
	head  int
	conn  *net.UDPConn
	buf   []byte
	sent  uint64 // datagrams
	pause udpPause
}

func mcastNetwork(v6 bool) string {
	if v6 {
		return "udp6"
	}
	return "udp4"
}

func newPortableSender(p *mcastPlan, group netip.AddrPort) (*udpPortableSender, error) {
	local := &net.UDPAddr{IP: p.Local.AsSlice()}
	if p.v6 && p.Local.IsLinkLocalUnicast() {
		local.Zone = p.Interface.Name
	}
	conn, err := net.ListenUDP(mcastNetwork(p.v6), local)
	if err != nil {
		return nil, fmt.Errorf("multicast: send from %v: %w", p.Local, err)
	}
	if p.v6 {
		c := ipv6.NewPacketConn(conn)
		err = errors.Join(c.SetMulticastInterface(p.Interface), c.SetMulticastLoopback(true),
			c.SetMulticastHopLimit(p.TTL))
		if p.DSCP != 0 {
			err = errors.Join(err, c.SetTrafficClass(p.DSCP<<2))
		}
		group = netip.AddrPortFrom(mcastZone(group.Addr(), p.Interface.Name), group.Port())
	} else {
		c := ipv4.NewPacketConn(conn)
		err = errors.Join(c.SetMulticastInterface(p.Interface), c.SetMulticastLoopback(true), c.SetMulticastTTL(p.TTL))
		if p.DSCP != 0 {
			err = errors.Join(err, c.SetTOS(p.DSCP<<2))
		}
	}
	if err != nil {
		_ = conn.Close() // the first error matters
		return nil, fmt.Errorf("multicast: send by interface %s: %w", p.Interface.Name, err)
	}
	own, _ := netip.ParseAddrPort(conn.LocalAddr().String())
	return &udpPortableSender{
		group: group, zone: p.Interface.Name, own: mcastPlainName(own), chunk: p.Chunk, head: p.head, conn: conn,
		buf: make([]byte, p.head+p.Chunk),
	}, nil
}

// mcastZone adds the interface to an IPv6 group whose scope needs it.
func mcastZone(group netip.Addr, name string) netip.Addr {
	if group.Is6() && (group.IsLinkLocalMulticast() || group.IsInterfaceLocalMulticast()) {
		return group.WithZone(name)
	}
	return group
}

func (s *udpPortableSender) route(comm uint32, to netip.Addr) {
	s.set(comm, netip.AddrPortFrom(mcastZone(to, s.zone), s.group.Port()))
}

// mcastPlainName removes zone and IPv4 mapping, which depend on the source of the address.
func mcastPlainName(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

func (s *udpPortableSender) Send(b *fabric.Batch) (int, error) {
	if err := b.Check(mcastMaxSegments, s.chunk); err != nil {
		return 0, fmt.Errorf("multicast: %w", err)
	}
	for i, h := range b.Headers {
		mcastPut(s.buf[:s.head], h)
		n := s.head + copy(s.buf[s.head:], b.Payloads[i])
		if err := s.write(s.buf[:n], s.of(h.Comm, s.group)); err != nil {
			return i, err
		}
		s.sent++
	}
	return len(b.Headers), nil
}

// write sends one datagram. Go's sockets block until there is room; a deadline bounds that. BSD kernels do
// not block for room in the queue of a device: they return ENOBUFS.
func (s *udpPortableSender) write(b []byte, to netip.AddrPort) error {
	_ = s.conn.SetWriteDeadline(time.Now().Add(udpPortableWait)) // fails only if closed, as the write will
	_, err := s.conn.WriteToUDPAddrPort(b, to)
	return s.pause.explain(err, to)
}

// udpPortableWait is how long a Send may block: Go's sockets cannot report whether they have room.
const udpPortableWait = time.Millisecond

// Completed counts all that were sent: the kernel copies the payloads.
func (s *udpPortableSender) Completed() uint64 { return s.sent }

// Await sleeps if the queue of the device was full; otherwise Send itself
// blocks for a moment.
func (s *udpPortableSender) Await(d time.Duration) { s.pause.sleep(d) }

func (s *udpPortableSender) Close() error { return s.conn.Close() }

// udpPortableReceiver receives one datagram per call. It does not know of datagrams that a full queue drops.
type udpPortableReceiver struct {
	mcastWaker
	udpCounters
	group  netip.AddrPort
	own    netip.AddrPort
	conn   *net.UDPConn
	ifi    *net.Interface
	v6     bool
	head   int
	buf    []byte
	buffer int         // bytes of the socket buffer
	ready  func() bool // whether the queue has datagrams
}

func newPortableReceiver(p *mcastPlan, group, own netip.AddrPort) (*udpPortableReceiver, error) {
	conn, err := net.ListenMulticastUDP(mcastNetwork(p.v6), p.Interface, net.UDPAddrFromAddrPort(group))
	if err != nil {
		return nil, fmt.Errorf("multicast: join %v on %s: %w; check that the interface is up and does multicast", group,
			p.Interface.Name, err)
	}
	r := &udpPortableReceiver{
		group: group, own: own, conn: conn, ifi: p.Interface, v6: p.v6, head: p.head, buf: make([]byte, mcastStage),
	}
	r.reader = conn
	mcastOnlyJoined(conn, p.v6)
	r.buffer = mcastSetReadBuffer(conn, p.ReceiveBuffer)
	r.ready = mcastReady(conn)
	return r, nil
}

// mcastSetReadBuffer requests a socket buffer, and halves the request while the system refuses it, as
// BSD systems do above kern.ipc.maxsockbuf. It returns the size of the buffer.
func mcastSetReadBuffer(conn *net.UDPConn, want int) int {
	const limit = 64 << 10
	for ; want > limit; want /= 2 {
		if conn.SetReadBuffer(want) == nil {
			return mcastReadBuffer(conn, want)
		}
	}
	return mcastReadBuffer(conn, limit)
}

func (r *udpPortableReceiver) join(group netip.Addr) error {
	var err error
	to := &net.UDPAddr{IP: group.AsSlice()}
	if r.v6 {
		err = ipv6.NewPacketConn(r.conn).JoinGroup(r.ifi, to)
	} else {
		err = ipv4.NewPacketConn(r.conn).JoinGroup(r.ifi, to)
	}
	if err != nil {
		return fmt.Errorf("multicast: join %v on %s: %w", group, r.ifi.Name, err)
	}
	return nil
}

func (r *udpPortableReceiver) leave(group netip.Addr) {
	to := &net.UDPAddr{IP: group.AsSlice()}
	// Leaving fails only if the socket is closed or the interface is gone, and with it all memberships.
	if r.v6 {
		_ = ipv6.NewPacketConn(r.conn).LeaveGroup(r.ifi, to)
	} else {
		_ = ipv4.NewPacketConn(r.conn).LeaveGroup(r.ifi, to)
	}
}

// Attach does nothing: portable sockets have no poller.
func (r *udpPortableReceiver) Attach(fabric.Poller, fabric.Sink, func(error)) bool { return false }

func (r *udpPortableReceiver) Receive(s fabric.Sink) error {
	for i := 0; i < udpPortableBurst && (i == 0 || r.ready()); i++ {
		n, from, err := r.conn.ReadFromUDPAddrPort(r.buf)
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed):
			return fabric.ErrClosed
		case errors.Is(err, os.ErrDeadlineExceeded):
			r.seen() // a Wake: drain the queue, then return
			continue
		default:
			return fmt.Errorf("multicast from %v: %w", r.group, err)
		}
		r.calls.Add(1)
		switch {
		case mcastPlainName(from) == r.own:
		case n < r.head:
			r.malformed.Add(1)
		default:
			r.datagrams.Add(1)
			s.Chunk(mcastParse(r.buf[:r.head]), r.buf[r.head:n])
		}
	}
	s.Idle()
	return nil
}

const udpPortableBurst = 64

func (r *udpPortableReceiver) Close() error { return r.conn.Close() }

// Pending is false on systems that cannot tell. The engine may then take queued datagrams for lost, and
// they arrive as duplicates.
func (r *udpPortableReceiver) Pending() bool { return mcastReady(r.conn)() }
