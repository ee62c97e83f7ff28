package ip

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/fabric"
)

// udpSegment is the control message that cuts a message into datagrams.
type udpSegment struct {
	head unix.Cmsghdr
	size uint16
	_    [6]byte
}

func newUDPSegment(size int) (c udpSegment) {
	c.head.SetLen(unix.CmsgLen(2))
	c.head.Level, c.head.Type, c.size = unix.SOL_UDP, unix.UDP_SEGMENT, uint16(size)
	return c
}

// udpSender sends from the payloads' memory, with one sendmsg of header, payload, header, payload, and
// so on. Its memory is allocated once, so Send does not allocate.
type udpSender struct {
	mcastRoutes[*udpName]
	plan    *mcastPlan
	group   netip.AddrPort
	name    *udpName // of group
	chunk   int
	head    int
	cut     int        // packet size of a datagram that is cut; 0: each fits one packet
	raw     *rawSocket // not in Go's poller, which would wake up for every packet sent
	pause   udpPause
	sent    uint64 // datagrams
	heads   []byte
	iov     []unix.Iovec
	msg     unix.Msghdr
	control udpSegment
	gso     bool
	noGSO   atomic.Pointer[string] // why GSO was turned off at run time
	// Packets that came back to this rank's receive socket, where the filter dropped them, and whether a
	// super-packet comes back as single datagrams.
	filtered *atomic.Uint64
	splits   bool
}

func newUDPSender(p *mcastPlan, group netip.AddrPort, fd int, gso, gro bool) *udpSender {
	batch := p.batch()
	s := &udpSender{
		plan: p, group: group, name: newUDPName(p, group), chunk: p.Chunk, head: p.head, cut: p.cut, gso: gso, splits: !gro,
		raw:      &rawSocket{fd: fd},
		heads:    make([]byte, batch*p.head),
		iov:      make([]unix.Iovec, 2*batch),
		filtered: new(atomic.Uint64),
	}
	for i := range batch {
		s.iov[2*i].Base = &s.heads[i*p.head]
		s.iov[2*i].SetLen(p.head)
	}
	return s
}

func (s *udpSender) Send(b *fabric.Batch) (int, error) {
	n := len(b.Headers)
	if n == 0 {
		return 0, nil
	}
	if err := b.Check(len(s.iov)/2, s.chunk); err != nil {
		return 0, fmt.Errorf("multicast: %w", err)
	}
	for i, h := range b.Headers {
		mcastPut(s.heads[i*s.head:][:s.head], h)
		s.iov[2*i+1].Base = unsafe.SliceData(b.Payloads[i])
		s.iov[2*i+1].SetLen(len(b.Payloads[i]))
	}
	to := s.of(b.Headers[0].Comm, s.name)
	s.msg.Name, s.msg.Namelen = to.pointer(), to.size
	took, err := s.sendAll(n, s.head+len(b.Payloads[0]))
	for i := range n {
		s.iov[2*i+1].Base = nil // the user's memory
	}
	s.sent += uint64(took)
	return took, s.pause.explain(err, s.group)
}

func (s *udpSender) route(comm uint32, to netip.Addr) {
	s.set(comm, newUDPName(s.plan, netip.AddrPortFrom(to, s.group.Port())))
}

// Completed counts all that were sent: the kernel copies the payloads.
func (s *udpSender) Completed() uint64 { return s.sent }

// sendAll sends n datagrams, of size bytes each but for the last.
func (s *udpSender) sendAll(n, size int) (took int, err error) {
	switch {
	case s.cut > 0 && size > s.cut:
		return s.transmit(0, n, s.cut, 1) // n is 1: see batch
	case n > 1 && s.gso:
		copies := 1
		if s.splits {
			copies = n
		}
		took, err := s.transmit(0, n, size, copies)
		if !udpGSORefused(err) {
			return took, err
		}
		// The kernel refuses super-packets on a route by a device that cannot checksum or that encrypts
		// (EIO), and with a smaller MTU (EINVAL, EMSGSIZE). Single datagrams still work.
		why := fmt.Sprintf("switched off while running: %v", err)
		s.noGSO.Store(&why)
		s.gso = false
	}
	for i := range n {
		if _, err := s.transmit(i, 1, 0, 1); err != nil {
			return i, err
		}
	}
	return n, nil
}

func udpGSORefused(err error) bool {
	return errors.Is(err, unix.EIO) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EMSGSIZE) ||
		errors.Is(err, unix.EOPNOTSUPP)
}

// transmit sends n datagrams from the first on in one message, which the kernel cuts into packets of cut
// bytes (0: it does not), and which reaches this rank's own receive socket as some copies.
func (s *udpSender) transmit(first, n, cut, copies int) (took int, err error) {
	s.msg.Iov = &s.iov[2*first]
	s.msg.SetIovlen(2 * n)
	s.msg.Control = nil
	s.msg.SetControllen(0)
	if cut > 0 {
		s.control = newUDPSegment(cut)
		s.msg.Control = (*byte)(unsafe.Pointer(&s.control))
		s.msg.SetControllen(int(unsafe.Sizeof(s.control)))
	}
	// Counted before the send, so that no drop is counted first.
	s.filtered.Add(uint64(copies))
	if err := s.raw.send(&s.msg); err != nil {
		if !mcastNoBuffers(err) { // the queue of the interface comes after the copy for this machine
			s.filtered.Add(-uint64(copies))
		}
		return 0, err
	}
	return n, nil
}

// Await blocks until half of the socket's buffer is free.
func (s *udpSender) Await(d time.Duration) {
	if !s.pause.sleep(d) {
		s.raw.awaitRoom(d)
	}
}

// udpAdvice is what the user can do about an error.
func udpAdvice(err error) string {
	switch errno, _ := errors.AsType[syscall.Errno](err); errno {
	case unix.EMSGSIZE:
		return "; the chunk does not fit the MTU any more: agree on a smaller one"
	case unix.EPERM, unix.EACCES:
		return "; a firewall on this machine refuses it: allow UDP to the group (nft list ruleset)"
	case unix.ENETUNREACH, unix.EHOSTUNREACH:
		return "; no route for multicast by this interface: for IPv6 on loopback add one " +
			"(ip -6 route add local ff00::/8 dev lo table local) or use IPv4"
	case unix.ENODEV, unix.ENXIO, unix.ENETDOWN:
		return "; the interface is gone or down"
	}
	return ""
}

// Close makes later calls of Send return fabric.ErrClosed.
func (s *udpSender) Close() error { return s.raw.free() }
