package node

import (
	"slices"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

// piece is a range of the buffer of a peer that arrives as the nth from that peer.
type piece struct {
	opKey
	from    int
	nth     uint32
	payload []byte
}

// heldKey names a piece that waits for its turn, by its number in the plan.
type heldKey struct {
	opKey
	recv int
}

// openRound returns a round whose buffers the fabric may touch, or nil.
func (h *host) openRound(key opKey) *hostRound {
	if r := h.rounds[key]; r != nil && r.state == isOpen {
		return r
	}
	return nil
}

// putLeaves is a range that leaves the buffer, for a peer or for an aggregator. It is read now, not when
// the node handed it over.
func (h *host) putLeaves(a Action) {
	key := opKey{a.Comm, a.Seq}
	if _, isMail := wire.MailSender(a.Seq); isMail {
		h.mailLeaves(a)
		return
	}
	r := h.openRound(key)
	if r == nil {
		return // it failed meanwhile
	}
	if a.Kind == Contribute {
		h.contribute(r, &a)
		return
	}
	payload := clustertest.Gather(r.share.recv, a.Off, a.Len, a.Parts)
	h.c.hosts[a.To].pieces[h.ID].Push(piece{key, h.ID, a.PSN, payload})
	h.node.Sent(h.c.Now, a.Comm, a.Seq, 1)
}

// piece is a piece that arrives.
func (h *host) piece(p piece) {
	placeable := h.openRound(p.opKey) != nil || h.openTransit(p.opKey) != nil
	if !placeable && h.node.Early(p.from, p.comm, p.seq, int64(len(p.payload))) {
		h.early[p.opKey] = append(h.early[p.opKey], p)
		h.peakEarly = max(h.peakEarly, len(h.early))
		return
	}
	h.node.Heard(h.c.Now, p.from)
	if !h.takes(p) && !h.c.hurt {
		h.c.Failf("rank %d does not take piece %d of rank %d", h.ID, p.nth, p.from)
	}
}

// takes places, adds or keeps a piece, and reports whether it was expected.
func (h *host) takes(p piece) bool {
	if _, isMail := wire.MailSender(p.seq); isMail {
		return h.takesMail(p)
	}
	o := h.openRound(p.opKey)
	if o == nil || o.in == nil {
		return false
	}
	i, r, hold, ok := o.in.Take(slices.Index(h.c.comms[p.comm], p.from), p.nth, int64(len(p.payload)))
	if !ok {
		return false
	}
	buf := o.share.recv
	switch {
	case hold:
		h.kept[heldKey{p.opKey, i}] = p.payload
	default:
		addPiece(buf, r, p.payload)
	}
	o.in.Arrived(i)
	for i := o.in.Next(); i >= 0; i = o.in.Next() {
		k := heldKey{p.opKey, i}
		addPiece(buf, &o.share.plan.Recvs[i], h.kept[k])
		delete(h.kept, k)
		o.in.Arrived(i)
	}
	prefix, left := o.in.Progress()
	h.node.Pieces(h.c.Now, p.from, p.comm, p.seq, prefix, left)
	return true
}

// addPiece places a piece, or adds it to the buffer's content.
func addPiece(buf []byte, r *p2p.Recv, payload []byte) {
	if r.Apart {
		copy(buf[r.Off:], buf[r.Base:r.Base+r.Len])
	}
	if r.Reduce {
		clustertest.Sum(buf[r.Off:], payload)
	} else {
		copy(buf[r.Off:], payload)
	}
}
