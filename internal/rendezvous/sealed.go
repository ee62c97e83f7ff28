package rendezvous

import (
	"net"
	"slices"
	"sync"

	"github.com/allcast/allcast/internal/seal"
)

// link is what both sides of a connection know after the proofs.
type link struct {
	secure  bool            // the other side wants to seal
	in, out *seal.Direction // nil: not both do
}

// newLink derives the keys of a connection if both sides seal: the nonces in the preambles
// make them new ones for every connection.
func newLink(key []byte, rank, root *preamble, weAreRoot bool) link {
	_, rankSeals, _ := rank.mode()
	_, rootSeals, _ := root.mode()
	l := link{secure: rankSeals}
	if !weAreRoot {
		l.secure = rootSeals
	}
	if !rankSeals || !rootSeals || key == nil {
		return l
	}
	m := seal.NewMaster(key, slices.Concat(rank[:], root[:]))
	l.out, l.in = m.Direction("rendezvous, rank k to 0"), m.Direction("rendezvous, 0 to rank k")
	if weAreRoot {
		l.in, l.out = l.out, l.in
	}
	return l
}

// wrap returns the connection as it is used from here on.
func (l link) wrap(c net.Conn) net.Conn {
	if l.out == nil {
		return c
	}
	return &sealedConn{Conn: c, in: seal.NewReader(l.in, c), out: l.out}
}

// sealedConn is a connection whose bytes nobody else can read or change.
type sealedConn struct {
	net.Conn
	in *seal.Reader

	mu     sync.Mutex
	out    *seal.Direction
	buf    []byte
	broken error // a record was not sent to its end: nothing can follow
}

func (c *sealedConn) Read(b []byte) (int, error) { return c.in.Read(b) }

func (c *sealedConn) Write(b []byte) (n int, err error) {
	const atOnce = 256 << 10 // what memory it takes does not depend on b
	c.mu.Lock()
	defer c.mu.Unlock()
	for n < len(b) && c.broken == nil {
		part := b[n:min(len(b), n+atOnce)]
		c.buf = c.out.Append(c.buf[:0], part)
		if _, c.broken = c.Conn.Write(c.buf); c.broken == nil {
			n += len(part)
		}
	}
	return n, c.broken
}

// CloseWrite ends our direction.
func (c *sealedConn) CloseWrite() error {
	closeWrite(c.Conn)
	return nil
}
