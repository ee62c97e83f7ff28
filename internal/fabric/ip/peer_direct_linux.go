package ip

import (
	"net"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// peerDirect writes small frames straight from the goroutine that has them, when
// nothing is queued before them: to wake the writer costs more than the write.
type peerDirect struct {
	conn *net.TCPConn // that raw is of
	raw  syscall.RawConn
	try  func(fd uintptr) // made once
	iov  [2]unix.Iovec
	msg  unix.Msghdr
	n    int
}

// peerGathers is that a write takes its bytes from two places.
const peerGathers = true

// send writes b and then more, as far as the socket takes it at once, and says how much
// that was. The scheduler is not told: see rawRecv.
func (d *peerDirect) send(c *net.TCPConn, b, more []byte) int {
	if d.conn != c {
		raw, err := c.SyscallConn()
		if err != nil {
			return 0
		}
		d.conn, d.raw = c, raw
		d.try = func(fd uintptr) {
			n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&d.msg)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			if errno == 0 {
				d.n = int(n)
			}
		}
	}
	d.n = 0
	for i, v := range [][]byte{b, more} {
		d.iov[i].Base = unsafe.SliceData(v)
		d.iov[i].SetLen(len(v))
	}
	d.msg.Iov = &d.iov[0]
	d.msg.SetIovlen(len(d.iov))
	_ = d.raw.Control(d.try) // closed: nothing was sent
	d.iov[1].Base = nil      // the user's memory
	return d.n
}
