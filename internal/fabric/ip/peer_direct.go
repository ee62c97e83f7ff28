//go:build unix && !linux

package ip

import (
	"net"
	"syscall"
)

// peerDirect writes small frames straight from the goroutine that has them, when
// nothing is queued before them: to wake the writer costs more than the write.
type peerDirect struct {
	conn *net.TCPConn // that raw is of
	raw  syscall.RawConn
	try  func(fd uintptr) bool // made once
	b    []byte
	n    int
}

// peerGathers is that a write takes its bytes from two places.
const peerGathers = false

// send writes b, as far as the socket takes it at once, and says how much that was.
func (d *peerDirect) send(c *net.TCPConn, b, _ []byte) int {
	if d.conn != c {
		raw, err := c.SyscallConn()
		if err != nil {
			return 0
		}
		d.conn, d.raw = c, raw
		d.try = func(fd uintptr) bool {
			d.n, _ = syscall.Write(int(fd), d.b)
			return true // never wait
		}
	}
	d.b, d.n = b, 0
	if err := d.raw.Write(d.try); err != nil {
		return 0
	}
	return max(0, d.n)
}
