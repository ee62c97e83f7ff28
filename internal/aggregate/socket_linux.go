package aggregate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/fabric/ip"
)

// prepare sets the options that must hold from the first datagram on.
func (s *socket) prepare(fd int, o socketOptions) error {
	if o.shared {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
			return fmt.Errorf("set SO_REUSEPORT: %w", err)
		}
	}
	// Go allows broadcasts on every socket. An address that a child reports may be that of a subnet.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 0); err != nil {
		return fmt.Errorf("clear SO_BROADCAST: %w", err)
	}
	// With CAP_NET_ADMIN the buffer may exceed rmem_max. Otherwise the kernel clamps it, and measure reads it back.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, o.buffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, o.buffer)
	}
	if o.send > 0 && unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, o.send) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, o.send)
	}
	// Path MTU discovery would set the flag that forbids fragments. Datagrams fit the path already, and a router
	// drops a super-packet with that flag: it looks larger than the MTU. One of both options applies.
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DONT)
	// Without this, sends succeed although the queue of the interface drops them. See ip.Reported.
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
	_, err := unix.GetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT)
	s.gso.Store(err == nil)
	s.gro = unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1) == nil
	return nil
}

func (s *socket) measure(wanted int) {
	s.buffer = wanted
	_ = s.raw.Control(func(fd uintptr) { // fails only when closed
		if n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF); err == nil {
			s.buffer = n
		}
	})
}

// drops is the number of messages that the full receive queue has dropped.
func (s *socket) drops() (n uint64) {
	_ = s.raw.Control(func(fd uintptr) { // fails only when closed
		var info [unix.SK_MEMINFO_DROPS + 1]uint32
		size := uint32(unsafe.Sizeof(info))
		if _, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0); errno == 0 {
			n = uint64(info[unix.SK_MEMINFO_DROPS])
		}
	})
	return n
}

// groControl is the control message with the datagram size of a train.
type groControl struct {
	head unix.Cmsghdr
	size int32
	_    int32
}

// gsoControl is the control message that cuts a train into datagrams.
type gsoControl struct {
	head unix.Cmsghdr
	size uint16
	_    [6]byte
}

// mmsghdr is struct mmsghdr of recvmmsg.
type mmsghdr struct {
	unix.Msghdr
	n uint32
}

const (
	inboxMessages = 16
	inboxMessage  = 1 << 16 // larger than any train
)

// An inbox is the memory of one system call that receives. It is allocated once.
type inbox struct {
	headers [inboxMessages]mmsghdr
	iov     [inboxMessages]unix.Iovec
	control [inboxMessages]groControl
	memory  []byte
	n       int
	errno   syscall.Errno
	read    func(fd uintptr) bool
	try     func(fd uintptr) // read, if it does not matter whether something came
}

func newInbox() *inbox {
	in := &inbox{memory: make([]byte, inboxMessages*inboxMessage)}
	for i := range in.headers {
		in.iov[i].Base = &in.memory[i*inboxMessage]
		in.iov[i].SetLen(inboxMessage)
		h := &in.headers[i]
		h.Iov = &in.iov[i]
		h.SetIovlen(1)
		h.Control = (*byte)(unsafe.Pointer(&in.control[i]))
	}
	// Go's poller calls read again when the socket is readable if read returns false. The call does not block, so the
	// scheduler need not know: it would wake Go's monitor thread, which costs more than the call.
	in.read = func(fd uintptr) bool {
		for i := range in.headers {
			in.headers[i].SetControllen(int(unsafe.Sizeof(in.control[i])))
		}
		for {
			var n uintptr
			n, _, in.errno = unix.RawSyscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&in.headers[0])), inboxMessages,
				unix.MSG_DONTWAIT, 0, 0)
			in.n = int(n)
			if ip.Reported(in.errno) { // the receiver of an earlier datagram is gone; the control connection tells
				ip.DropReports(fd)
				in.errno = unix.EINTR
			}
			if in.errno != unix.EINTR {
				return in.errno != unix.EAGAIN
			}
		}
	}
	in.try = func(fd uintptr) { in.read(fd) }
	return in
}

// receive waits for messages, and returns how many came.
func (s *socket) receive(in *inbox) (int, error) {
	if err := s.raw.Read(in.read); err != nil {
		return 0, ended(err)
	}
	if in.errno != 0 {
		return 0, in.errno
	}
	return in.n, nil
}

// poll returns how many messages came, without waiting.
func (s *socket) poll(in *inbox) int {
	if s.raw.Control(in.try) != nil || in.errno != 0 {
		return 0
	}
	return in.n
}

// message returns a message that was received, and the size of its datagrams.
func (in *inbox) message(i int) (b []byte, segment int) {
	h, c := &in.headers[i], &in.control[i]
	if int(h.Controllen) >= unix.CmsgLen(4) && c.head.Level == unix.SOL_UDP && c.head.Type == unix.UDP_GRO {
		segment = int(c.size)
	}
	return in.memory[i*inboxMessage:][:min(h.n, inboxMessage)], segment
}

// An outbox is the memory of one system call that sends. It is allocated once.
type outbox struct {
	msg      unix.Msghdr
	iov      unix.Iovec
	control  gsoControl
	name     unix.RawSockaddrInet6 // with room for both versions
	patience time.Duration
	end      time.Time // of the batch's patience; zero while nothing had to wait
	limited  bool      // whether the socket has a deadline
	errno    syscall.Errno
	attempt  func(fd uintptr)
	write    func(fd uintptr) bool // attempt, for Go's poller
}

// newOutbox returns an outbox whose sends wait for room, but not longer than patience per batch.
func newOutbox(patience time.Duration) *outbox {
	o := &outbox{patience: patience}
	o.msg.Iov = &o.iov
	o.msg.SetIovlen(1)
	o.msg.Name = (*byte)(unsafe.Pointer(&o.name))
	o.attempt = func(fd uintptr) {
		for reports := 0; ; {
			_, _, o.errno = unix.RawSyscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&o.msg)), unix.MSG_DONTWAIT)
			switch {
			case reports < ip.MaxReports && ip.Reported(o.errno):
				ip.DropReports(fd)
				reports++
			case o.errno != unix.EINTR:
				return
			}
		}
	}
	o.write = func(fd uintptr) bool {
		for {
			o.attempt(fd)
			if left := time.Until(o.end); o.errno == unix.ENOBUFS && left > 0 {
				time.Sleep(min(left, 50*time.Microsecond)) // the kernel does not report when a device has room
				continue
			}
			return o.errno != unix.EAGAIN
		}
	}
	return o
}

// begin starts a batch. All its sends together wait for room only as long as one.
func (o *outbox) begin() { o.end = time.Time{} }

// aim sets the destination.
func (o *outbox) aim(to netip.AddrPort, v6 bool) {
	o.name = unix.RawSockaddrInet6{}
	if v6 {
		o.name.Family, o.name.Addr = unix.AF_INET6, to.Addr().As16()
		o.msg.Namelen = unix.SizeofSockaddrInet6
	} else {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(&o.name))
		v4.Family, v4.Addr = unix.AF_INET, to.Addr().Unmap().As4()
		o.msg.Namelen = unix.SizeofSockaddrInet4
	}
	// Both forms have the port at the same offset, in network order.
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&o.name.Port))[:], to.Port())
}

// send sends a train with datagrams of segment bytes. It returns how many were sent, and the first error.
func (s *socket) send(o *outbox, to netip.AddrPort, train []byte, segment int) (sent int, err error) {
	if !s.v6 && !to.Addr().Unmap().Is4() {
		return 0, fmt.Errorf("cannot send to %v: the socket has an address of IPv4", to)
	}
	o.aim(to, s.v6)
	if len(train) > segment && s.gso.Load() {
		err := s.transmit(o, train, segment)
		switch {
		case err == nil:
			return (len(train) + segment - 1) / segment, nil
		case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EMSGSIZE):
			// The route to this destination has a smaller MTU. Single datagrams may be cut into fragments.
		case gsoRefused(err):
			if s.gso.CompareAndSwap(true, false) {
				s.warn(err)
			}
		default:
			return 0, err
		}
	}
	return s.sendEach(train, segment, func(d []byte) error { return s.transmit(o, d, 0) })
}

// gsoRefused reports whether the kernel refuses super-packets: the device cannot checksum, or encrypts. Single
// datagrams still work.
func gsoRefused(err error) bool {
	return errors.Is(err, unix.EIO) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOPROTOOPT)
}

// transmit sends one message, which the kernel cuts into datagrams; 0: it does not.
func (s *socket) transmit(o *outbox, b []byte, segment int) error {
	o.iov.Base = unsafe.SliceData(b)
	o.iov.SetLen(len(b))
	o.msg.Control = nil
	o.msg.SetControllen(0)
	if segment > 0 {
		o.control.head.SetLen(unix.CmsgLen(2))
		o.control.head.Level, o.control.head.Type = unix.SOL_UDP, unix.UDP_SEGMENT
		o.control.size = uint16(segment)
		o.msg.Control = (*byte)(unsafe.Pointer(&o.control))
		o.msg.SetControllen(int(unsafe.Sizeof(o.control)))
	}
	if o.limited && o.end.IsZero() {
		_ = s.conn.SetWriteDeadline(time.Time{}) // fails only if closed, as the send will
		o.limited = false
	}
	err := s.raw.Control(o.attempt)
	if err == nil && noRoom(o.errno) {
		err = s.awaitRoom(o)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), err == nil && noRoom(o.errno):
		return errNoRoom
	case err != nil:
		return ended(err)
	case o.errno != 0:
		return o.errno
	}
	return nil
}

func noRoom(errno syscall.Errno) bool { return errno == unix.EAGAIN || errno == unix.ENOBUFS }

// awaitRoom sends again once there is room. It waits in Go's poller: a thread that waits in a system call would wake
// Go's monitor thread each time.
func (s *socket) awaitRoom(o *outbox) error {
	if o.end.IsZero() {
		o.end = time.Now().Add(o.patience)
		o.limited = true
		if err := s.conn.SetWriteDeadline(o.end); err != nil {
			return err
		}
	}
	return s.raw.Write(o.write)
}
