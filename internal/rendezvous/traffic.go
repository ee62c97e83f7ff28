package rendezvous

import (
	"net"
	"sync/atomic"
)

// Traffic counts the bytes of a rank's connections, handshakes included.
type Traffic struct{ Sent, Received uint64 }

// meter counts the traffic of all connections of a rank.
type meter struct{ sent, received atomic.Uint64 }

func (m *meter) read() Traffic { return Traffic{m.sent.Load(), m.received.Load()} }

// wrap returns a connection that counts its bytes.
func (m *meter) wrap(c net.Conn) net.Conn { return &meteredConn{c, m} }

type meteredConn struct {
	net.Conn
	meter *meter
}

func (c *meteredConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.meter.received.Add(uint64(n))
	return n, err
}

func (c *meteredConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.meter.sent.Add(uint64(n))
	return n, err
}

// CloseWrite ends the direction to the peer.
func (c *meteredConn) CloseWrite() error {
	closeWrite(c.Conn)
	return nil
}
