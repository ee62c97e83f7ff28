package seal

import (
	"net"
	"sync"
)

// A Conn is a connection whose bytes travel in records. Writes may be concurrent.
type Conn struct {
	net.Conn
	in *Reader

	mu     sync.Mutex
	out    *Direction
	buf    []byte
	broken error // error that cut off a record, after which nothing can follow
}

// NewConn protects a connection in both directions.
func NewConn(c net.Conn, in, out *Direction) *Conn {
	return &Conn{Conn: c, in: NewReader(in, c), out: out}
}

func (c *Conn) Read(b []byte) (int, error) { return c.in.Read(b) }

func (c *Conn) Write(b []byte) (n int, err error) {
	const maxPart = 256 << 10 // bounds the memory
	c.mu.Lock()
	defer c.mu.Unlock()
	for n < len(b) && c.broken == nil {
		part := b[n:min(len(b), n+maxPart)]
		c.buf = c.out.Append(c.buf[:0], part)
		if _, c.broken = c.Conn.Write(c.buf); c.broken == nil {
			n += len(part)
		}
	}
	return n, c.broken
}

// CloseWrite ends the direction to the peer, if the connection can do that.
func (c *Conn) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}
