package mcast

import (
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/wire"
)

// Verdict is what a receive worker makes of a datagram.
type Verdict uint8

// Verdicts. Only Placed is worth a write; the rest is ordinary input.
const (
	Placed    Verdict = iota // its payload belongs in the receive buffer
	Duplicate                // the chunk is there already
	Late                     // a read of the chunk is under way and will place it
	Foreign                  // no chunk of the operation: its communicator, immediate or length does not fit
	Stale                    // of no operation that is open
)

// A Placement says where the chunks of one subgroup of one operation belong, and which of them are
// in place. The Collective, the receive worker and reads share it; see package place for who may change it.
type Placement struct {
	*place.Map
	Comm uint32
	Seq  uint64
	Sub  int
	Data any // the driver's

	g     *Geometry
	own   wire.Range
	token uint64 // of its datagrams,
	slot  uint32 // and their slot, once an Intake knows it
}

// newPlacement makes the placement of a rank's subgroup. The rank's own chunks are in place.
func newPlacement(g *Geometry, sub, rank int, comm uint32, seq uint64) *Placement {
	p := &Placement{Map: place.New(g.PSNs(sub)), Comm: comm, Seq: seq, Sub: sub, g: g}
	p.own.PSN, p.own.N = g.Block(sub, rank)
	p.Finish(p.own.PSN, p.own.N)
	return p
}

// Geometry is that of the operation.
func (p *Placement) Geometry() *Geometry { return p.g }

// Own is the rank's own chunks, which it does not receive.
func (p *Placement) Own() wire.Range { return p.own }

// Receives reports whether there is anything to receive.
func (p *Placement) Receives() bool { return p.own.N < p.Len() }

// Locate says where a chunk belongs in the receive buffer, and its length.
func (p *Placement) Locate(psn uint32) (off int64, length int) {
	off, _, length = p.g.Locate(p.Sub, psn)
	return off, length
}

// judge decides about a datagram that carries chunk psn with a payload of length bytes. With
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
