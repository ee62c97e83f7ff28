//go:build unix && !linux

package ip

import (
	"net"
	"syscall"
)

// peerDirect is as on Linux, but for pairs of slices.
type peerDirect struct {
	conn *net.TCPConn // connection of raw
	raw  syscall.RawConn
	try  func(fd uintptr) bool // made once
	b    []byte
	n    int
}

const peerGathers = false

// send writes b as far as the socket takes it without blocking, and returns how many bytes it wrote.
func (d *peerDirect) send(c *net.TCPConn, b, _ []byte) int {
	if d.conn != c {
		raw, err := c.SyscallConn()
		if err != nil {
			return 0
		}
		d.conn, d.raw = c, raw
		d.try = func(fd uintptr) bool {
			d.n, _ = syscall.Write(int(fd), d.b)
			return true // never block
		}
	}
	d.b, d.n = b, 0
	if err := d.raw.Write(d.try); err != nil {
		return 0
	}
	return max(0, d.n)
}
