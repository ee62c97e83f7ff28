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
	group   netip.AddrPort
	chunk   int
	head    int
	name    *udpName         // of the group
	raw     *rawSocket       // not in Go's poller, which would wake up for every packet sent
	write   func(fd uintptr) // s.send, made once
	look    func(fd uintptr) // s.waitForRoom, likewise
	fds     [1]unix.PollFd
	poll    time.Duration // how long look blocks
	pause   udpPause
	sent    uint64 // datagrams
	heads   []byte
	iov     []unix.Iovec
	msg     unix.Msghdr
	control udpSegment
	errno   syscall.Errno
	closed  atomic.Bool
	gso     bool
	noGSO   atomic.Pointer[string] // why GSO was turned off at run time
	// Packets that came back to this rank's receive socket, where the filter dropped them, and their
	// number per super-packet.
	filtered *atomic.Uint64
	splits   bool
	cut      int // packet size of a datagram that is cut; 0: each fits one packet
}

func newUDPSender(p *mcastPlan, group netip.AddrPort, fd int, gso, gro bool) *udpSender {
	batch := p.batch()
	s := &udpSender{
		group: group, chunk: p.Chunk, head: p.head, name: newUDPName(p, group), gso: gso, splits: !gro, cut: p.cut,
		heads:    make([]byte, batch*p.head),
		iov:      make([]unix.Iovec, 2*batch),
		filtered: new(atomic.Uint64),
		control:  newUDPSegment(0),
	}
	s.msg.Name = s.name.pointer()
	s.msg.Namelen = s.name.size
	s.write, s.look = s.send, s.waitForRoom
	for i := range batch {
		s.iov[2*i].Base = &s.heads[i*p.head]
		s.iov[2*i].SetLen(p.head)
	}
	s.raw = &rawSocket{fd: fd}
	return s
}

// Send implements fabric.Sender.
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
	took, err := s.sendAll(n, s.head+len(b.Payloads[0]))
	for i := range n {
		s.iov[2*i+1].Base = nil // the user's memory
	}
	s.sent += uint64(took)
	return took, err
}

// Completed implements fabric.Sender. The kernel copies the payloads.
func (s *udpSender) Completed() uint64 { return s.sent }

func (s *udpSender) sendAll(n, size int) (took int, err error) {
	if s.cut > 0 {
		s.control.size = uint16(s.cut)
		if err := s.transmit(0, n, size > s.cut, 1); err != nil { // n is 1: see batch
			return 0, s.explain(err)
		}
		return n, nil
	}
	if n > 1 && s.gso {
		s.control.size = uint16(size)
		copies := 1
		if s.splits {
			copies = n
		}
		err := s.transmit(0, n, true, copies)
		if err == nil {
			return n, nil
		}
		if !udpGSORefused(err) {
			return 0, s.explain(err)
		}
		// The kernel refuses super-packets on a route by a device that cannot checksum or that encrypts
		// (EIO), and with a smaller MTU (EINVAL, EMSGSIZE). Single datagrams still work.
		why := fmt.Sprintf("switched off while running: %v", err)
		s.noGSO.Store(&why)
		s.gso = false
	}
	for i := range n {
		if err := s.transmit(i, 1, false, 1); err != nil {
			return i, s.explain(err)
		}
	}
	return n, nil
}

func udpGSORefused(err error) bool {
	return errors.Is(err, unix.EIO) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EMSGSIZE) ||
		errors.Is(err, unix.EOPNOTSUPP)
}

// transmit sends n datagrams from the first on in one message, which reaches this rank's own receive
// socket as some copies.
func (s *udpSender) transmit(first, n int, segment bool, copies int) error {
	s.msg.Iov = &s.iov[2*first]
	s.msg.SetIovlen(2 * n)
	s.msg.Control = nil
	s.msg.SetControllen(0)
	if segment {
		s.msg.Control = (*byte)(unsafe.Pointer(&s.control))
		s.msg.SetControllen(int(unsafe.Sizeof(s.control)))
	}
	// Counted before the send, so that no drop is counted first.
	s.filtered.Add(uint64(copies))
	if err := s.raw.Control(s.write); err != nil || s.closed.Load() {
		return fabric.ErrClosed
	}
	if s.errno == 0 {
		s.pause.end()
		return nil
	}
	s.filtered.Add(-uint64(copies))
	return s.errno
}

// send sends the message if there is room.
func (s *udpSender) send(fd uintptr) {
	for {
		_, _, s.errno = unix.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&s.msg)), unix.MSG_DONTWAIT)
		if s.errno != unix.EINTR {
			return
		}
	}
}

// Await implements fabric.Sender. A writable socket has half of its buffer free.
func (s *udpSender) Await(d time.Duration) {
	if s.pause.sleep(d) {
		return
	}
	s.poll = d
	_ = s.raw.Control(s.look) // if closed, Send returns the error
}

// waitForRoom is look, made once.
func (s *udpSender) waitForRoom(fd uintptr) {
	s.fds[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLOUT}
	_, _ = unix.Poll(s.fds[:], int(s.poll.Milliseconds())) // Send tries again in any case
}

// explain turns an errno into an error.
func (s *udpSender) explain(err error) error {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return err
	}
	switch errno {
	case unix.EAGAIN:
		return fabric.ErrBusy
	case unix.ENOBUFS:
		s.pause.begin()
		return fabric.ErrBusy
	}
	return fmt.Errorf("multicast to %v: %w%s", s.group, errno, udpAdvice(errno))
}

func udpAdvice(errno syscall.Errno) string {
	switch errno {
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
func (s *udpSender) Close() error {
	s.closed.Store(true)
	return s.raw.free()
}
