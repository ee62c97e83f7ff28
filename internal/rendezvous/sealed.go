package rendezvous

import (
	"net"
	"slices"

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
	return seal.NewConn(c, l.in, l.out)
}
