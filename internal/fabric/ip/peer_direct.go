//go:build unix

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

// direct writes what is queued, as far as the socket takes it at once, and says
// whether that was all. p.mu is held, and the writer waits for something to do. What goes
// wrong shows again when the writer tries.
func (p *peer) direct() bool {
	d := &p.now
	if d.conn != p.out {
		raw, err := p.out.SyscallConn()
		if err != nil {
			return false
		}
		d.conn, d.raw = p.out, raw
		d.try = func(fd uintptr) bool {
			d.n, _ = syscall.Write(int(fd), d.b)
			return true // never wait
		}
	}
	if p.auth.out != nil {
		p.q.protect(p.auth.out)
	}
	it := &p.q.items[0]
	d.b, d.n = p.q.arena[it.from:it.to], 0
	if err := d.raw.Write(d.try); err != nil || d.n <= 0 {
		return false
	}
	p.sent.Add(uint64(d.n))
	if d.n < len(d.b) {
		it.from += d.n
		return false
	}
	p.q.reset()
	return true
}
