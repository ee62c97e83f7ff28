package ip

import (
	"errors"
	"net"
)

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
