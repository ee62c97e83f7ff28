package datapath

import (
	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/seal"
	"github.com/allcast/allcast/internal/wire"
)

// protection tells this job's datagrams from others, and detects changed ones. Datagrams are plain, or
// carry a checksum, or are sealed, alike in all of a job. A checksum travels in the header, so that
// payloads are still sent from and received in the users' memory. The send worker seals into memory of
// its own. A receive worker decrypts a payload from where it was received straight to where it
// belongs, which takes the place of the copy. A changed payload is not recorded as placed, and is
// fetched like a lost one.
type protection struct {
	tokens *tokens
	master *seal.Master // of operations' keys; nil: datagrams are not sealed
	sums   bool         // datagrams carry checksums
	head   int          // bytes of a datagram's header
}

// init takes the room for seals from the capabilities.
func (p *protection) init(cfg Config, caps *fabric.Capabilities) {
	p.head = max(caps.Header, wire.HeaderSize)
	if cfg.Secure {
		p.master = seal.NewMaster(cfg.Secret, nil)
		caps.Chunk -= seal.TagSize
		caps.Overhead += seal.TagSize
	}
	p.sums = cfg.Integrity && !cfg.Secure && p.head > wire.HeaderSize
}

// sealing is the key of an operation.
type sealing struct {
	*seal.Datagrams
	members []int // world ranks
}

// sealing makes the key of a round; nil: its datagrams are not sealed.
func (p *protection) sealing(r Round) *sealing {
	if p.master == nil {
		return nil
	}
	g := r.Buffers.Group
	return &sealing{p.master.Datagrams(g.Name, g.Members, r.Key.Seq), g.Members}
}

// nonce is the nonce of a chunk. It depends on the rank that owns the chunk.
func (s *sealing) nonce(g *mcast.Geometry, stream int, psn, imm uint32) seal.Nonce {
	return seal.Nonce{Sender: uint32(s.members[g.Owner(stream, psn)]), Stream: uint32(stream), Imm: imm}
}

// sealer is the send worker's memory for sealed payloads.
type sealer struct {
	seal.Scratch
	header [wire.HeaderSize]byte
	out    []byte // payloads of one batch
}

// protect returns a chunk's payload as it is sent, and completes its header.
func (s *sender) protect(op *Operation, stream int, psn uint32, h *wire.Header, payload []byte) []byte {
	switch {
	case op.seal != nil:
		q := &s.sealer
		if cap(q.out) == 0 {
			q.out = make([]byte, 0, s.max*(s.d.caps.Chunk+seal.TagSize))
		}
		h.Put(q.header[:])
		from := len(q.out)
		q.out = op.seal.Seal(&q.Scratch, q.out, op.seal.nonce(op.geo, stream, psn, h.Imm), payload, q.header[:])
		return q.out[from:]
	case s.d.protect.sums:
		h.Sum = checksum(h, payload)
	}
	return payload
}

// opener is a receive worker's memory for decryption.
type opener struct {
	seal.Scratch
	header [wire.HeaderSize]byte
}

// decrypt decrypts a sealed chunk to where it belongs. The caller has checked that the chunk is missing,
// so that replayed datagrams cost little.
func (w *receiver) decrypt(p *mcast.Placement, dst []byte, h wire.Header, psn uint32, sealed []byte) {
	op := p.Data.(*landing).op
	h.Put(w.opener.header[:])
	if !op.seal.Open(&w.opener.Scratch, dst, op.seal.nonce(op.geo, p.Stream, psn, h.Imm), sealed, w.opener.header[:]) {
		w.corrupt.Add(1)
		return
	}
	w.in.Place(p, wire.Range{PSN: psn, N: 1})
}

// intact reports whether a chunk that was received in its slot has the checksum in its header.
func (w *receiver) intact(h *wire.Header, s mcast.Slot) bool {
	mem := w.in.Guess().Data.(*landing).op.mem.Load()
	return mem != nil && h.Sum == checksum(h, (*mem)[s.Off:s.Off+int64(s.Len)])
}

// checksum returns Header.Checksum of the payload, but faster: the words are the encoded header.
func checksum(h *wire.Header, payload []byte) uint32 {
	return seal.Sum(seal.SumWords(0, h.Token, uint64(h.Imm)<<32|uint64(h.Comm)), payload)
}
