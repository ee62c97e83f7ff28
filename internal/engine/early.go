package engine

import (
	"bytes"
	"errors"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/protocol"
)

// maxEarly bounds what is kept of one peer for each communicator: it is at most 8 calls
// ahead, and sends us the result twice in one at most, in parts.
const maxEarly = 16 * node.EagerLimit

// early is data for operations that this rank has not begun.
type early struct {
	pieces map[fabric.OpKey][]earlyPiece
	bytes  []int // by peer
}

type earlyPiece struct {
	peer  int
	piece fabric.Piece
	data  []byte
}

func newEarly(size int) early {
	return early{pieces: map[fabric.OpKey][]earlyPiece{}, bytes: make([]int, size)}
}

// keep keeps data for an operation that will begin, if there will be one.
func (e *Engine) keep(now protocol.Time, t *task) {
	if !e.node.Early(t.peer, t.piece.Op.Comm, t.piece.Op.Seq, t.piece.Len) {
		return
	}
	n := len(t.buf.B)
	if int64(n) != t.piece.Len {
		// Parts would have to be put together again; no fabric cuts one so small.
		e.lost(now, t.peer, errors.New("it sent a small piece in parts"))
		return
	}
	if e.early.bytes[t.peer]+n > maxEarly*len(e.names) {
		e.lost(now, t.peer, errors.New("it sent more than a correct peer does before we make the calls"))
		return
	}
	e.early.bytes[t.peer] += n
	e.early.pieces[t.piece.Op] = append(e.early.pieces[t.piece.Op], earlyPiece{t.peer, t.piece, bytes.Clone(t.buf.B)})
}

// recall hands over what was kept for an operation that has begun.
func (e *Engine) recall(op *operation) {
	if len(e.early.pieces) == 0 {
		return
	}
	for _, p := range e.early.pieces[op.key] {
		e.early.bytes[p.peer] -= len(p.data)
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
			e.early.bytes[p.peer] -= len(p.data)
		}
		delete(e.early.pieces, key)
	}
}
