package ip

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/fabric"
)

// How long Send bears with a network that has no buffers, in sum, and with one that does
// not take what is in the socket's. What is not sent is fetched.
const (
	udpPatience = time.Second
	udpFull     = 5 * time.Second
)

// udpSegment is the control message that cuts a message in datagrams.
type udpSegment struct {
	head unix.Cmsghdr
	size uint16
	_    [6]byte
}

// udpSender sends from the payloads' memory: one sendmsg with a list of header,
// payload, header, payload. Everything is made once, so Send allocates nothing.
type udpSender struct {
	group   netip.AddrPort
	chunk   int
	head    int
	name    *udpName         // of the group
	raw     *rawSocket       // Go's poller would be woken for every packet that leaves
	write   func(fd uintptr) // s.send, made once
	look    func(fd uintptr) // s.ask, likewise
	fds     [1]unix.PollFd
	room    bool
	heads   []byte
	iov     []unix.Iovec
	msg     unix.Msghdr
	control udpSegment
	errno   syscall.Errno
	closed  atomic.Bool
	gso     bool
	noGSO   atomic.Pointer[string] // why it was switched off while running
	// Packets that came back to our own receive socket, where its filter dropped them, and
	// how many of them a super-packet makes there.
	filtered *atomic.Uint64
	splits   bool
	cut      int // a datagram is cut in packets of so many bytes; 0: each fits one
}

func newUDPSender(p *mcastPlan, group netip.AddrPort, fd int, gso, gro bool) *udpSender {
	batch := p.batch()
	s := &udpSender{
		group: group, chunk: p.Chunk, head: p.head, name: newUDPName(p, group), gso: gso, splits: !gro, cut: p.cut,
		heads:    make([]byte, batch*p.head),
		iov:      make([]unix.Iovec, 2*batch),
		filtered: new(atomic.Uint64),
	}
	s.control.head.SetLen(unix.CmsgLen(2))
	s.control.head.Level = unix.SOL_UDP
	s.control.head.Type = unix.UDP_SEGMENT
	s.msg.Name = s.name.pointer()
	s.msg.Namelen = s.name.size
	s.write, s.look = s.send, s.ask
	for i := range batch {
		s.iov[2*i].Base = &s.heads[i*p.head]
		s.iov[2*i].SetLen(p.head)
	}
	s.raw = &rawSocket{fd: fd}
	return s
}

// Send implements fabric.Sender.
func (s *udpSender) Send(b *fabric.Batch) error {
	n := len(b.Headers)
	if n == 0 {
		return nil
	}
	if err := mcastCheckBatch(b, len(s.iov)/2, s.chunk); err != nil {
		return err
	}
	for i, h := range b.Headers {
		mcastPut(s.heads[i*s.head:][:s.head], h)
		s.iov[2*i+1].Base = unsafe.SliceData(b.Payloads[i])
		s.iov[2*i+1].SetLen(len(b.Payloads[i]))
	}
	err := s.sendAll(n, s.head+len(b.Payloads[0]))
	for i := range n {
		s.iov[2*i+1].Base = nil // the user's memory
	}
	return err
}

func (s *udpSender) sendAll(n, size int) error {
	if s.cut > 0 {
		s.control.size = uint16(s.cut)
		errno, err := s.transmit(0, n, size > s.cut, 1) // n is 1: see batch
		if err == nil {
			err = s.explain(errno)
		}
		return err
	}
	if n > 1 && s.gso {
		s.control.size = uint16(size)
		copies := 1
		if s.splits {
			copies = n
		}
		errno, err := s.transmit(0, n, true, copies)
		if errno == 0 {
			return err
		}
		if !udpGSORefused(errno) {
			return s.explain(errno)
		}
		// A route by a device that cannot checksum or encrypts gets super-packets
		// refused (EIO), a smaller MTU too (EINVAL, EMSGSIZE). Single datagrams still work.
		why := fmt.Sprintf("switched off while running: %v", errno)
		s.noGSO.Store(&why)
		s.gso = false
	}
	for i := range n {
		errno, err := s.transmit(i, 1, false, 1)
		if err == nil {
			err = s.explain(errno)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func udpGSORefused(e syscall.Errno) bool {
	return e == unix.EIO || e == unix.EINVAL || e == unix.EMSGSIZE || e == unix.EOPNOTSUPP
}

// transmit sends n datagrams from the first on in one message, which reaches our own
// receive socket as so many copies. While the socket's buffer is full it
// waits.
func (s *udpSender) transmit(first, n int, segment bool, copies int) (syscall.Errno, error) {
	s.msg.Iov = &s.iov[2*first]
	s.msg.SetIovlen(2 * n)
	s.msg.Control = nil
	s.msg.SetControllen(0)
	if segment {
		s.msg.Control = (*byte)(unsafe.Pointer(&s.control))
		s.msg.SetControllen(int(unsafe.Sizeof(s.control)))
	}
	// Before it is sent: a drop is ours when it is counted, at the latest.
	s.filtered.Add(uint64(copies))
	waited := time.Duration(0)
	for pause := 20 * time.Microsecond; ; pause *= 2 {
		if err := s.raw.Control(s.write); err != nil || s.closed.Load() {
			return 0, fabric.ErrClosed
		}
		if s.errno == unix.EAGAIN && waited < udpFull { // the socket's buffer is full
			waited += s.await()
			pause = 10 * time.Microsecond
			continue
		}
		// The queue of a device is full; the kernel does not say when it has room.
		if s.errno != unix.ENOBUFS || waited > udpPatience {
			break
		}
		time.Sleep(pause)
		waited += pause
	}
	if s.errno != 0 {
		s.filtered.Add(-uint64(copies))
	}
	return s.errno, nil
}

// send sends the message, if there is room.
func (s *udpSender) send(fd uintptr) {
	for {
		_, _, s.errno = unix.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&s.msg)), unix.MSG_DONTWAIT)
		if s.errno != unix.EINTR {
			return
		}
	}
}

// Ready implements fabric.Prompt: a socket that can be written to has half of its buffer
// free.
func (s *udpSender) Ready() bool {
	_ = s.raw.Control(s.look) // closed: Send says so
	return s.room
}

// ask is look, made once.
func (s *udpSender) ask(fd uintptr) {
	s.fds[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLOUT}
	n, err := unix.Poll(s.fds[:], 0)
	s.room = err != nil || n > 0
}

// await waits for room, for a moment: Close does not interrupt it.
func (s *udpSender) await() time.Duration {
	const most = 20 // ms
	start := time.Now()
	_ = s.raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		_, _ = unix.Poll(fds, most) // whatever it says, we try again
	})
	return time.Since(start)
}

func (s *udpSender) explain(errno syscall.Errno) error {
	if errno == 0 {
		return nil
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
	case unix.ENOBUFS:
		return "; the interface's queue stays full: is its link up?"
	case unix.ENODEV, unix.ENXIO, unix.ENETDOWN:
		return "; the interface is gone or down"
	}
	return ""
}

// Close makes a Send that waits return.
func (s *udpSender) Close() error {
	s.closed.Store(true)
	return s.raw.free()
}
