package ip

import (
	"errors"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tcpUserTimeout makes the kernel give up a connection after d without acknowledgements, or with a
// closed window (tcp(7), RFC 5482).
func tcpUserTimeout(c *net.TCPConn, d time.Duration) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
	return errors.Join(err, set)
}

// tcpLatePort makes the kernel choose the port of a connection when it knows where the connection goes, so that
// connections to different peers can share a port (ip(7), IP_BIND_ADDRESS_NO_PORT).
func tcpLatePort(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		// Before Linux 4.2, each connection has a port of its own. IPv6 sockets have this option, too.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	})
}

// tcpTurn is how many bytes of a connection are read before other connections are served.
const tcpTurn = 1 << 20

// poll makes the poller read a connection.
func (t *TCP) poll(in *peerIn, c *net.TCPConn) error {
	old, err := c.SyscallConn()
	if err != nil {
		return err
	}
	p := in.p
	p.mu.Lock()
	defer p.mu.Unlock() // a close of the connection must close the new one
	s, err := newRawSocket(old)
	if err != nil {
		return err
	}
	in.use(s)
	t.wg.Add(1)
	_, err = t.cfg.Poller.add(s.fd, func(src *pollSource) {
		s.dry = false
		err := in.read(tcpTurn)
		switch {
		case errors.Is(err, errAgain):
			return
		case errors.Is(err, errMore): // perhaps in a buffer that epoll does not know
			t.cfg.Poller.wake(src)
			return
		}
		t.cfg.Poller.remove(src)
		p.inEnded(in, err)
		_ = s.free()
		t.wg.Done()
	})
	if err != nil {
		in.use(c) // nothing was read
		_ = s.free()
		t.wg.Done()
		return err
	}
	_ = c.Close() // the socket has two descriptors
	return nil
}
