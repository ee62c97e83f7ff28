package mcast

import "github.com/allcast/allcast/internal/wire"

// handshake is the final handshake of neighbours on the ring. Neighbours may compare digests of
// everything that they received. A rank with a bit flipped in memory differs from both neighbours, and
// a rank completes only if its digest equals its right neighbour's. The driver computes the digest,
// because the driver owns the memory.
type handshake struct {
	haveAll  bool // whether every chunk is in place
	sent     bool // whether the left neighbour knows that
	received bool // whether the right neighbour has every chunk

	requested, known bool // whether the driver was asked for the digest, and has answered
	ours             uint64
	compared         bool // whether the right neighbour has sent its digest, theirs
	theirs           uint64
	reported         bool // whether a difference has been reported
}

func (h *handshake) differs() bool { return h.known && h.compared && h.ours != h.theirs }

// message returns this rank's message of the final handshake.
func (h *handshake) message() wire.Msg {
	if h.known {
		return wire.Msg{Kind: wire.MsgFinalSum, Digest: h.ours}
	}
	return wire.Msg{Kind: wire.MsgFinal}
}

// receive records the right neighbour's message. A repetition changes nothing.
func (h *handshake) receive(m *wire.Msg) {
	if !h.received {
		h.received, h.compared, h.theirs = true, m.Kind == wire.MsgFinalSum, m.Digest
	}
}
