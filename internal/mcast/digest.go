package mcast

import "github.com/allcast/allcast/internal/wire"

// digest is a checksum of all that a Collective received. Neighbours on the ring compare theirs
// in the final handshake: a rank whose memory changed a bit differs from both of its
// neighbours, and completes only if it equals the right one. The driver makes it, because
// the memory is the driver's.
type digest struct {
	asked, known bool
	ours         uint64
	told         bool // by the right neighbour
	theirs       uint64
	said         bool // that they differ
}

func (d *digest) differs() bool { return d.known && d.told && d.ours != d.theirs }

// message is our part of the final handshake.
func (d *digest) message() wire.Msg {
	if d.known {
		return wire.Msg{Kind: wire.MsgFinalSum, Digest: d.ours}
	}
	return wire.Msg{Kind: wire.MsgFinal}
}

// digests reports whether ranks compare what they received.
func (o *Collective) digests() bool { return o.cfg.Digest && o.g.size > 1 }

// Spans calls f for each piece of the receive buffer that this round fills, in order: the
// same on all ranks, their own block included.
func (g *Geometry) Spans(f func(off, n int64)) {
	for i, n := range g.counts {
		f(g.displs[i], n)
	}
}
