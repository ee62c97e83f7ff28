package ip

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/fabric"
)

// udpBurst is the largest number of system calls per Receive, so that its worker gets to its other work
// under load.
const udpBurst = 64

// udpGRO is the control message with the datagram size of a super-packet.
type udpGRO struct {
	head unix.Cmsghdr
	size int32
	_    int32
}

// segment is the datagram size of a message that came with control data of this size; 0: the message is
// one datagram.
func (c *udpGRO) segment(size int) int {
	if size < unix.CmsgLen(4) || c.head.Level != unix.SOL_UDP || c.head.Type != unix.UDP_GRO {
		return 0
	}
	return int(c.size)
}

// udpInput is the memory of one system call that receives. It is allocated once.
type udpInput struct {
	scatter *mcastScatter
	iov     []unix.Iovec
	msg     unix.Msghdr
	control udpGRO
	from    udpName
	own     *udpName // address of this rank's sender; nil if the kernel filters
	n       int      // bytes that were received
	errno   syscall.Errno
}

// receive fills the slots and the stage. It never blocks, so the kernel keeps no slot if nothing came, and
// the scheduler need not know: see rawRecv.
func (in *udpInput) receive(fd uintptr) {
	in.aim()
	var n uintptr
	for {
		in.msg.Namelen = unix.SizeofSockaddrInet6
		in.msg.SetControllen(int(unsafe.Sizeof(in.control)))
		n, _, in.errno = unix.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&in.msg)), unix.MSG_DONTWAIT)
		if in.errno != unix.EINTR {
			break
		}
	}
	if in.n = int(n); in.errno != 0 {
		in.release()
	}
}

// aim points the message at the slots and the stage.
func (in *udpInput) aim() {
	i := 0
	for k, slot := range in.scatter.slots {
		head := in.scatter.head(k)
		in.iov[i].Base = &head[0]
		in.iov[i].SetLen(len(head))
		in.iov[i+1].Base = unsafe.SliceData(slot)
		in.iov[i+1].SetLen(len(slot))
		i += 2
	}
	rest := in.scatter.overflow()
	in.iov[i].Base = &rest[0]
	in.iov[i].SetLen(len(rest))
	in.msg.Iov = &in.iov[0]
	in.msg.SetIovlen(i + 1)
	in.msg.Control = (*byte)(unsafe.Pointer(&in.control))
	if in.own != nil {
		in.msg.Name = in.from.pointer()
	}
}

// release drops the references to users' memory.
func (in *udpInput) release() {
	for i := range in.scatter.slots {
		in.iov[2*i+1].Base = nil
	}
	in.scatter.forget()
}

// udpReceiver receives datagrams and super-packets.
type udpReceiver struct {
	mcastWaker
	udpCounters
	plan   *mcastPlan
	group  netip.AddrPort
	file   *os.File
	socket controller   // of file, or made by Attach
	call   func() error // receives into in, and blocks while wait is set; made once
	closed atomic.Bool
	poller *Poller                    // set by Attach before source
	source atomic.Pointer[pollSource] // set by Attach

	sink fabric.Sink
	wait bool
	in   udpInput
	cut  int // packet size of super-packets that are one datagram; 0: none is

	filtered *atomic.Uint64 // see udpSender; nil if the kernel does not filter
}

func newUDPReceiver(p *mcastPlan, group netip.AddrPort, fd int) (*udpReceiver, error) {
	batch := p.batch()
	r := &udpReceiver{
		plan: p, group: group, cut: p.cut,
		in: udpInput{scatter: newMcastScatter(p.head, batch), iov: make([]unix.Iovec, 2*batch+1)},
		// A file and not a net.Conn, whose errors allocate.
		file: os.NewFile(uintptr(fd), "multicast receiver"),
	}
	raw, err := r.file.SyscallConn()
	if err != nil {
		_ = r.file.Close() // the first error matters
		return nil, fmt.Errorf("multicast: poll a socket: %w", err)
	}
	// Go's poller calls read again when the socket is ready if read returns false. It asks for slots only
	// then, when datagrams are likely there.
	read := func(fd uintptr) bool {
		r.in.scatter.expect(r.sink)
		r.in.receive(fd)
		return r.in.errno != unix.EAGAIN || !r.wait
	}
	r.call = func() error { return raw.Read(read) }
	r.reader, r.socket = r.file, raw
	return r, nil
}

func (r *udpReceiver) Receive(s fabric.Sink) error {
	r.sink, r.wait = s, true
	return r.drain()
}

// drain hands datagrams to the sink until the queue is empty, or for udpBurst system calls.
func (r *udpReceiver) drain() error {
	for range udpBurst {
		err := r.call()
		switch {
		case err == nil:
		case r.closed.Load():
			return fabric.ErrClosed
		case errors.Is(err, os.ErrDeadlineExceeded):
			r.seen()
			r.wait = false // drain the queue, then return
			continue
		default:
			return fmt.Errorf("multicast from %v: %w", r.group, err)
		}
		if r.in.errno == unix.EAGAIN {
			break
		}
		if r.in.errno != 0 {
			return fmt.Errorf("multicast from %v: %w", r.group, r.in.errno)
		}
		r.wait = false
		r.deliver()
	}
	r.sink.Idle()
	return nil
}

func (r *udpReceiver) deliver() {
	r.calls.Add(1)
	defer r.in.release()
	if r.in.own != nil && r.in.own.same(&r.in.from) {
		return
	}
	seg := r.in.control.segment(int(r.in.msg.Controllen))
	if seg == r.cut {
		seg = 0
	}
	good, malformed := r.in.scatter.deliver(r.sink, r.in.n, seg)
	r.datagrams.Add(uint64(good))
	if malformed > 0 {
		r.malformed.Add(uint64(malformed))
	}
}

func (r *udpReceiver) Attach(by fabric.Poller, s fabric.Sink, failed func(error)) bool {
	poller, known := by.(*Poller)
	if !known || poller == nil {
		return false
	}
	sock, err := newRawSocket(r.socket)
	if err != nil {
		return false
	}
	socket, call, try := r.socket, r.call, r.in.receive
	r.socket, r.sink, r.wait, r.poller = sock, s, false, poller
	r.call = func() error {
		r.in.scatter.expect(s) // not under the socket's lock: the sink may use the socket
		err := sock.Control(try)
		if err != nil {
			r.in.scatter.forget()
		}
		return err
	}
	src, err := poller.addBulk(sock.fd, func(*pollSource) {
		if err := r.drain(); err != nil {
			failed(err)
		}
	})
	if err != nil {
		r.socket, r.call = socket, call
		_ = sock.free()
		return false
	}
	r.source.Store(src)
	_ = r.file.Close() // the socket has two descriptors
	return true
}

func (r *udpReceiver) Wake() {
	if src := r.source.Load(); src != nil {
		r.poller.wake(src)
		return
	}
	r.mcastWaker.Wake()
}

func (r *udpReceiver) Pending() (yes bool) {
	_ = r.socket.Control(func(fd uintptr) { yes = readable(fd) }) // fails only when closed
	return yes
}

// Stats counts a dropped super-packet as one datagram, as the kernel does.
func (r *udpReceiver) Stats() fabric.ReceiverStats {
	r.countDrops()
	return r.udpCounters.Stats()
}

// countDrops asks the kernel, which also counts the packets that the filter drops. Those are this
// rank's own, and their number is known. Packets in flight make the result too small for a moment, but
// never too large, so the maximum counts.
func (r *udpReceiver) countDrops() {
	_ = r.socket.Control(func(fd uintptr) { // fails only when closed: the last count holds
		_, drops, err := udpMemInfo(int(fd))
		if err != nil {
			return
		}
		if r.filtered != nil {
			drops -= uint32(r.filtered.Load()) // both wrap around
		}
		n := uint64(max(0, int32(drops)))
		for {
			old := r.dropped.Load()
			if n <= old || r.dropped.CompareAndSwap(old, n) {
				return
			}
		}
	})
}

func (r *udpReceiver) join(group netip.Addr) (err error) {
	closed := r.socket.Control(func(fd uintptr) { err = udpJoin(r.plan, int(fd), group) })
	return cmp.Or(closed, err)
}

func (r *udpReceiver) leave(group netip.Addr) {
	_ = r.socket.Control(func(fd uintptr) { udpLeave(r.plan, int(fd), group) }) // a closed socket has left
}

func (r *udpReceiver) Close() error {
	r.countDrops()
	r.closed.Store(true)
	if s, ok := r.socket.(*rawSocket); ok {
		return s.free() // also removes it from the poller
	}
	return r.file.Close()
}
