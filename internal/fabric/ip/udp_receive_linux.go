package ip

import (
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

// udpReceiver receives datagrams and super-packets. All memory of its system calls is allocated once.
type udpReceiver struct {
	mcastWaker
	group  netip.AddrPort
	file   *os.File
	raw    syscall.RawConn       // of file
	read   func(fd uintptr) bool // r.receive, made once
	socket controller            // of file, or made by Attach
	closed atomic.Bool

	// After Attach.
	poller *Poller
	source atomic.Pointer[pollSource]

	// Of one system call.
	sink    fabric.Sink
	wait    bool
	n       int
	errno   syscall.Errno
	scatter *mcastScatter
	iov     []unix.Iovec
	msg     unix.Msghdr
	control udpGRO
	from    udpName
	own     *udpName // address of this rank's sender; nil if the kernel filters
	cut     int      // packet size of super-packets that are one datagram; 0: none is

	filtered  *atomic.Uint64 // see udpSender; nil if the kernel does not filter
	datagrams atomic.Uint64
	malformed atomic.Uint64
	calls     atomic.Uint64
	dropped   atomic.Uint64
}

func newUDPReceiver(p *mcastPlan, group netip.AddrPort, fd int) (*udpReceiver, error) {
	batch := p.batch()
	r := &udpReceiver{
		group:   group,
		poller:  p.Poller,
		scatter: newMcastScatter(p.head, batch),
		iov:     make([]unix.Iovec, 2*batch+1),
	}
	r.read = r.receive
	var err error
	r.file, r.raw, err = udpFile(fd, "multicast receiver")
	r.reader, r.socket = r.file, r.raw
	return r, err
}

// Receive implements fabric.Receiver.
func (r *udpReceiver) Receive(s fabric.Sink) error {
	r.sink = s
	r.wait = true
	for range udpBurst {
		err := r.raw.Read(r.read)
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
		if r.errno == unix.EAGAIN {
			break
		}
		if r.errno != 0 {
			return fmt.Errorf("multicast from %v: %w", r.group, r.errno)
		}
		r.wait = false
		r.deliver(s)
	}
	s.Idle()
	return nil
}

// receive is called by the poller with the socket. It asks for slots only now that datagrams are likely
// there. The system call does not block, so the kernel keeps no slot if nothing came. It returns false
// to be called again when the socket is ready.
func (r *udpReceiver) receive(fd uintptr) bool {
	r.scatter.expect(r.sink)
	return r.take(fd)
}

// take is receive after the slots are known.
func (r *udpReceiver) take(fd uintptr) bool {
	r.aim()
	var n uintptr
	for {
		r.msg.Namelen = unix.SizeofSockaddrInet6
		r.msg.SetControllen(int(unsafe.Sizeof(r.control)))
		// It never blocks, so the scheduler need not know: see rawRecv.
		n, _, r.errno = unix.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&r.msg)), unix.MSG_DONTWAIT)
		if r.errno != unix.EINTR {
			break
		}
	}
	r.n = int(n)
	if r.errno == 0 {
		return true
	}
	r.release()
	return r.errno != unix.EAGAIN || !r.wait
}

// aim points the message at the slots and the stage.
func (r *udpReceiver) aim() {
	i := 0
	for k, slot := range r.scatter.slots {
		head := r.scatter.head(k)
		r.iov[i].Base = &head[0]
		r.iov[i].SetLen(len(head))
		r.iov[i+1].Base = unsafe.SliceData(slot)
		r.iov[i+1].SetLen(len(slot))
		i += 2
	}
	rest := r.scatter.overflow()
	r.iov[i].Base = &rest[0]
	r.iov[i].SetLen(len(rest))
	r.msg.Iov = &r.iov[0]
	r.msg.SetIovlen(i + 1)
	r.msg.Control = (*byte)(unsafe.Pointer(&r.control))
	if r.own != nil {
		r.msg.Name = r.from.pointer()
	}
}

func (r *udpReceiver) deliver(s fabric.Sink) {
	r.calls.Add(1)
	defer r.release()
	if r.own != nil && r.own.same(&r.from) {
		return
	}
	seg := r.control.segment(int(r.msg.Controllen))
	if seg == r.cut {
		seg = 0
	}
	good, malformed := r.scatter.deliver(s, r.n, seg)
	r.datagrams.Add(uint64(good))
	if malformed > 0 {
		r.malformed.Add(uint64(malformed))
	}
}

// release drops the references to users' memory.
func (r *udpReceiver) release() {
	for i := range r.scatter.slots {
		r.iov[2*i+1].Base = nil
	}
	r.scatter.forget()
}

// Pending implements fabric.Receiver.
func (r *udpReceiver) Pending() (yes bool) {
	_ = r.socket.Control(func(fd uintptr) { yes = mcastReadable(fd) }) // fails only when closed
	return yes
}

// Stats implements fabric.Receiver. The kernel counts a dropped super-packet as one datagram.
func (r *udpReceiver) Stats() fabric.ReceiverStats {
	r.countDrops()
	return fabric.ReceiverStats{
		Datagrams: r.datagrams.Load(),
		Dropped:   r.dropped.Load(),
		Malformed: r.malformed.Load(),
		Calls:     r.calls.Load(),
	}
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

// Close makes a blocked Receive return.
func (r *udpReceiver) Close() error {
	r.countDrops()
	r.closed.Store(true)
	if s, ok := r.socket.(*rawSocket); ok {
		return s.free() // also removes it from the poller
	}
	return r.file.Close()
}
