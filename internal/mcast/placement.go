package mcast

import (
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/wire"
)

// Verdict is the decision of a receive worker about a datagram.
type Verdict uint8

// Verdicts. Only Placed leads to a write; the others are expected input.
const (
	Placed    Verdict = iota // the payload belongs in the receive buffer
	Duplicate                // the chunk is already in place
	Late                     // a read of the chunk is in progress and will place it
	Foreign                  // not a chunk of the operation: communicator, immediate or length does not match
	Stale                    // no open operation has its token
)

// A Placement records where the chunks of one stream of one operation belong, and which of them are
// in place. The Collective, the receive worker and reads share it. Package place defines which of
// them may change it.
type Placement struct {
	*place.Map
	Comm   uint32
	Seq    uint64
	Stream int
	Data   any // private to the driver

	g     *Geometry
	own   wire.Range
	token uint64 // token of its datagrams, set by the Intake
	slot  uint32 // slot of its datagrams, set by the Intake
	tag   uint32 // upper bits of the PSNs of its datagrams; 0 unless the operation is eager
}

// newPlacement returns the placement of one stream of a rank. The rank's own chunks are in place.
func newPlacement(g *Geometry, stream, rank int, comm uint32, seq uint64) *Placement {
	p := &Placement{Map: place.New(g.PSNs(stream)), Comm: comm, Seq: seq, Stream: stream, g: g}
	p.own.PSN, p.own.N = g.Block(stream, rank)
	p.Finish(p.own.PSN, p.own.N)
	return p
}

// Own returns the rank's own chunks, which it does not receive.
func (p *Placement) Own() wire.Range { return p.own }

// Receives reports whether the rank receives any chunk of the stream.
func (p *Placement) Receives() bool { return p.own.N < p.Len() }

// Locate returns the offset of a chunk in the receive buffer and its length.
func (p *Placement) Locate(psn uint32) (off int64, length int) {
	off, _, length = p.g.Locate(p.Stream, psn)
	return off, length
}

// judge decides about a datagram with chunk psn and a payload of length bytes. If the verdict is
// Placed, the payload belongs at offset off, and the chunk is free.
func (p *Placement) judge(psn uint32, length int) (off int64, v Verdict) {
	if psn >= p.Len() {
		return 0, Foreign
	}
	off, want := p.Locate(psn)
	switch {
	case length != want:
		return 0, Foreign
	case p.Free(psn):
		return off, Placed
	case p.ForRead(psn):
		return 0, Late
	}
	return 0, Duplicate
}
