package engine

import (
	"bytes"
	"errors"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/step"
)

const (
	// earlyResults is how many results are kept of one peer for each communicator at most: it is at
	// most 8 calls ahead, and sends us the result of a call at most twice.
	earlyResults = 16
	// earlyCost is about what a kept piece takes besides its bytes: an earlyPiece, the spare room of the
	// slice that it is in, and an entry of the map.
	earlyCost = 256
)

// earlyLimit bounds what is kept of one peer: for each communicator, results and the pieces that they
// come in. An eager call has a piece for each rank and each segment, or fewer.
func (e *Engine) earlyLimit() int {
	return len(e.names) * earlyResults * (node.EagerLimit + (node.EagerSegments+e.cfg.Size)*earlyCost)
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

// cost is what a piece counts towards earlyLimit. An empty one is not free.
func (p *earlyPiece) cost() int { return earlyCost + len(p.data) }

func newEarly(size int) early {
	return early{pieces: map[fabric.OpKey][]earlyPiece{}, kept: make([]int, size)}
}

// keep keeps data for an operation that will begin, if there will be one.
func (e *Engine) keep(now step.Time, t *task) {
	if !e.node.Early(t.peer, t.piece.Op.Comm, t.piece.Op.Seq, t.piece.Len) {
		return
	}
	if int64(len(t.buf.B)) != t.piece.Len {
		// Parts would have to be put together again; no fabric cuts one so small.
		e.lost(now, t.peer, errors.New("it sent a small piece in parts"))
		return
	}
	p := earlyPiece{peer: t.peer, piece: t.piece, data: t.buf.B}
	if e.early.kept[p.peer]+p.cost() > e.earlyLimit() {
		e.lost(now, p.peer, errors.New("it sent more than a correct peer does before we make the calls"))
		return
	}
	p.data = bytes.Clone(p.data)
	e.early.kept[p.peer] += p.cost()
	e.early.pieces[p.piece.Op] = append(e.early.pieces[p.piece.Op], p)
}

// recall hands over what was kept for an operation that has begun.
func (e *Engine) recall(op *operation) {
	if len(e.early.pieces) == 0 {
		return
	}
	for _, p := range e.early.pieces[op.key] {
		e.early.kept[p.peer] -= p.cost()
		e.receive(op, p.peer, p.piece, 0, &fabric.Buffer{B: p.data})
	}
	delete(e.early.pieces, op.key)
}

// forgetEarly is for a communicator that broke.
func (e *Engine) forgetEarly(comm uint32) {
	for key, pieces := range e.early.pieces {
		if key.Comm != comm {
			continue
		}
		for _, p := range pieces {
			e.early.kept[p.peer] -= p.cost()
		}
		delete(e.early.pieces, key)
	}
}
