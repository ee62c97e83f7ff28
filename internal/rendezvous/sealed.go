package rendezvous

import (
	"net"
	"slices"
	"sync"

	"github.com/allcast/allcast/internal/seal"
)

// link is the result of a handshake.
type link struct {
	secure  bool            // the other side wants to seal
	in, out *seal.Direction // nil unless both sides do
}

// newLink derives the keys of a connection if both sides seal. The nonces in the preambles make the keys
// unique to the connection.
func newLink(key []byte, child, parent *preamble, weAreParent bool) link {
	l := link{secure: child.seals()}
	if !weAreParent {
		l.secure = parent.seals()
	}
	if !child.seals() || !parent.seals() || key == nil {
		return l
	}
	m := seal.NewMaster(key, slices.Concat(child[:], parent[:]))
	l.out, l.in = m.Direction("rendezvous, rank k to 0"), m.Direction("rendezvous, 0 to rank k")
	if weAreParent {
		l.in, l.out = l.out, l.in
	}
	return l
}

// wrap returns the connection, sealed if both sides want that.
func (l link) wrap(c net.Conn) net.Conn {
	if l.out == nil {
		return c
	}
	return &sealedConn{Conn: c, in: seal.NewReader(l.in, c), out: l.out}
}

// sealedConn encrypts and authenticates a connection.
type sealedConn struct {
	net.Conn
	in *seal.Reader

	mu     sync.Mutex
	out    *seal.Direction
	buf    []byte
	broken error // error that cut off a record, after which nothing can follow
}

func (c *sealedConn) Read(b []byte) (int, error) { return c.in.Read(b) }

func (c *sealedConn) Write(b []byte) (n int, err error) {
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

// CloseWrite ends the direction to the peer.
func (c *sealedConn) CloseWrite() error {
	closeWrite(c.Conn)
	return nil
}
