package mcast

import "github.com/allcast/allcast/internal/wire"

// digest is a checksum of everything that a Collective received. Neighbours on the ring compare
// their digests in the final handshake. A rank with a bit flipped in memory differs from both
// neighbours, and a rank completes only if its digest equals its right neighbour's. The driver
// computes the digest, because the driver owns the memory.
type digest struct {
	requested, known bool
	ours             uint64
	received         bool // whether theirs has arrived from the right neighbour
	theirs           uint64
	reported         bool // whether a difference has been reported
}

func (d *digest) differs() bool { return d.known && d.received && d.ours != d.theirs }

// message returns this rank's message of the final handshake.
func (d *digest) message() wire.Msg {
	if d.known {
		return wire.Msg{Kind: wire.MsgFinalSum, Digest: d.ours}
	}
	return wire.Msg{Kind: wire.MsgFinal}
}

// comparesDigests reports whether ranks compare digests.
func (o *Collective) comparesDigests() bool { return o.cfg.Digest && o.g.size > 1 }

// Spans calls f for each piece of the receive buffer that this round fills, in order. The pieces are
// the same on all ranks and include a rank's own block.
func (g *Geometry) Spans(f func(off, n int64)) {
	for i, n := range g.counts {
		f(g.displs[i], n)
	}
}
