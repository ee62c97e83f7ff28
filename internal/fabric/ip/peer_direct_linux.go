package ip

import (
	"net"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// peerDirect writes small frames from the goroutine that sends them, if nothing is queued before them:
// waking the writer costs more than the write.
type peerDirect struct {
	conn *net.TCPConn // connection of raw
	raw  syscall.RawConn
	try  func(fd uintptr) // made once
	iov  [2]unix.Iovec
	msg  unix.Msghdr
	n    int
}

// peerGathers says that one write takes bytes from two places.
const peerGathers = true

// send writes b and then more as far as the socket takes them without blocking, and returns how many
// bytes it wrote. It does not tell the scheduler: see rawRecv.
func (d *peerDirect) send(c *net.TCPConn, b, more []byte) int {
	if d.conn != c {
		raw, err := c.SyscallConn()
		if err != nil {
			return 0
		}
		d.conn, d.raw = c, raw
		d.try = func(fd uintptr) {
			n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&d.msg)),
				unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
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
