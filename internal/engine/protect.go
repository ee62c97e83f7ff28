package engine

import (
	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/seal"
	"github.com/allcast/allcast/internal/wire"
)

// Datagrams are plain, summed or sealed, the same in all of a job. Sums travel in the
// header, so that payloads are still sent from and received in the users' memory. What is
// sealed is made in the send worker's own memory, and opened from where it was received
// straight to where it belongs: that takes the place of the copy. A payload that is not
// what was sent is not marked as placed, and so fetched like one that was lost.

// protect prepares the engine for Config.Secure and Integrity.
func (e *Engine) protect() {
	e.head = max(e.caps.Header, fabric.HeaderSize)
	if e.cfg.Secure {
		e.master = seal.NewMaster(e.cfg.Secret, nil)
		e.caps.Chunk -= seal.TagSize
		e.caps.Overhead += seal.TagSize
	}
	e.sums = e.cfg.Integrity && !e.cfg.Secure && e.head > fabric.HeaderSize
}

// sealing is the key of an operation.
type sealing struct {
	*seal.Datagrams
	members []int // world ranks
}

// sealing makes the key of an operation; nil: its datagrams are not sealed.
func (e *Engine) sealing(key fabric.OpKey, k *call) *sealing {
	if e.master == nil {
		return nil
	}
	return &sealing{e.master.Datagrams(e.names[key.Comm], k.group.members, key.Seq), k.group.members}
}

// nonce is the one of a chunk, by who owns it.
func (s *sealing) nonce(g *mcast.Geometry, sub int, psn, imm uint32) seal.Nonce {
	return seal.Nonce{Sender: uint32(s.members[g.Owner(sub, psn)]), Sub: uint32(sub), Imm: imm}
}

// sealer is the send worker's memory for what it seals.
type sealer struct {
	seal.Scratch
	header [fabric.HeaderSize]byte
	out    []byte // what one batch holds
}

// protect returns a chunk's payload as it is sent, and completes its header.
func (s *sender) protect(op *operation, sub int, psn uint32, h *fabric.Header, payload []byte) []byte {
	switch {
	case op.seal != nil:
		q := &s.sealer
		if cap(q.out) == 0 {
			q.out = make([]byte, 0, s.max*(s.e.caps.Chunk+seal.TagSize))
		}
		h.Put(q.header[:])
		from := len(q.out)
		q.out = op.seal.Seal(&q.Scratch, q.out, op.seal.nonce(op.geo, sub, psn, h.Imm), payload, q.header[:])
		return q.out[from:]
	case s.e.sums:
		h.Sum = h.Checksum(payload)
	}
	return payload
}

// opener is a receive worker's memory.
type opener struct {
	seal.Scratch
	header [fabric.HeaderSize]byte
}

// sealedLength is the length of a chunk that is sealed in a payload of so many bytes.
func sealedLength(payload int) int { return payload - seal.TagSize }

// open opens a sealed chunk to where it belongs. One that is there already is not opened: whoever
// plays it back makes us do little.
func (w *receiver) open(p *mcast.Placement, dst []byte, h fabric.Header, psn uint32, sealed []byte) {
	op := p.Data.(*landing).op
	h.Put(w.opener.header[:])
	if !op.seal.Open(&w.opener.Scratch, dst, op.seal.nonce(op.geo, w.sub, psn, h.Imm), sealed, w.opener.header[:]) {
		w.corrupt.Add(1)
		return
	}
	w.in.Place(p, wire.Range{PSN: psn, N: 1})
}

// intact reports whether a chunk that was received in its slot is what was sent.
func (w *receiver) intact(h *fabric.Header, s mcast.Slot) bool {
	mem := w.in.Guess().Data.(*landing).mem.Load()
	return mem != nil && h.Sum == h.Checksum((*mem)[s.Off:s.Off+int64(s.Len)])
}
