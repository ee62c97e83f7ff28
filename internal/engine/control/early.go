package control

import (
	"bytes"
	"errors"

	"github.com/allcast/allcast/internal/engine/datapath"
	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/step"
)

const (
	// earlyResults is the largest number of results kept per peer and communicator. A peer is at most 8
	// calls ahead, and sends the result of a call at most twice.
	earlyResults = 16
	// earlyCost is about what a kept piece takes besides its bytes: an earlyPiece, spare room of its
	// slice, and an entry of the map.
	earlyCost = 256
)

// earlyLimit bounds what is kept per peer: for each communicator, results and the pieces that they come
// in, and eager messages. An eager call has at most one piece per rank and segment.
func (c *Control) earlyLimit() int {
	results := earlyResults * (node.EagerLimit + (node.EagerSegments+c.cfg.Size)*earlyCost)
	return c.comms.count() * (results + node.MailCredit)
}

// early is data for operations that this rank has not begun.
type early struct {
	pieces map[fabric.OpKey][]earlyPiece
	kept   []int // by peer: the cost of its pieces
}

type earlyPiece struct {
	peer  int
	piece fabric.Piece
	data  []byte
}

// cost is what a piece counts towards earlyLimit. An empty piece is not free.
func (p *earlyPiece) cost() int { return earlyCost + len(p.data) }

func newEarly(size int) early {
	return early{pieces: map[fabric.OpKey][]earlyPiece{}, kept: make([]int, size)}
}

// keep keeps a piece, if its operation will begin.
func (c *Control) keep(now step.Time, ev *datapath.Event) {
	if !c.node.Early(ev.Peer, ev.Piece.Op.Comm, ev.Piece.Op.Seq, ev.Piece.Len) {
		return
	}
	if int64(len(ev.Buf.B)) != ev.Piece.Len {
		// The parts would have to be reassembled, and no fabric cuts so small a piece.
		c.lost(now, ev.Peer, errors.New("it sent a small piece in parts"))
		return
	}
	p := earlyPiece{peer: ev.Peer, piece: ev.Piece, data: ev.Buf.B}
	if c.early.kept[p.peer]+p.cost() > c.earlyLimit() {
		c.lost(now, p.peer, errors.New("it sent more data ahead of the calls than a correct peer does"))
		return
	}
	p.data = bytes.Clone(p.data)
	c.early.kept[p.peer] += p.cost()
	c.early.pieces[p.piece.Op] = append(c.early.pieces[p.piece.Op], p)
}

// take removes the pieces for an operation and returns them.
func (e *early) take(op fabric.OpKey) []earlyPiece {
	pieces := e.pieces[op]
	for _, p := range pieces {
		e.kept[p.peer] -= p.cost()
	}
	delete(e.pieces, op)
	return pieces
}

// recall hands over the pieces that were kept for an operation that has begun.
func (c *Control) recall(op *datapath.Operation) {
	for _, p := range c.early.take(op.Key) {
		op.Receive(p.peer, p.piece, 0, &fabric.Buffer{B: p.data})
	}
}

// forgetEarly drops the pieces for a communicator that broke.
func (c *Control) forgetEarly(comm uint32) {
	c.data.ForgetEarly(comm)
	for key := range c.early.pieces {
		if key.Comm == comm {
			c.early.take(key)
		}
	}
}
