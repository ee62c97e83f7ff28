package engine

import (
	"sync"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/step"
)

// transfers are the open operations that run point to point, for those who read their pieces from
// the network.
type transfers struct {
	mu   sync.RWMutex
	open map[fabric.OpKey]*operation
}

func (t *transfers) add(op *operation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[op.key] = op
}

func (t *transfers) remove(op *operation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, op.key)
}

// find returns an operation that is open; nil: it is not, or not yet.
func (t *transfers) find(key fabric.OpKey) *operation {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.open[key]
}

// sign notes that data came from a rank: it is alive. What it sends next, heartbeats too, may come
// long after.
func (e *Engine) sign(rank int) {
	if rank >= 0 && rank < len(e.signs) {
		e.signs[rank].Store(int64(max(1, e.now())))
	}
}

// receive takes a part of a piece for an operation that is open. Whoever reads it from the network
// calls it.
func (e *Engine) receive(op *operation, peer int, p fabric.Piece, off int64, b *fabric.Buffer) {
	defer b.Release()
	from, member := op.call.group.rankOf(peer)
	if !member || !op.pins.enter() {
		return
	}
	prefix, left, more, err := op.pieces.take(from, p, off, b.B)
	e.leave(op)
	if err != nil {
		(*handler)(e).Lost(peer, err)
	}
	if more {
		t := newTask(taskPieces)
		t.op, t.peer, t.id, t.n = op, peer, uint64(prefix), uint32(left)
		e.push(t)
	}
}

// leave ends what pins.enter began.
func (e *Engine) leave(op *operation) {
	if op.pins.leave() {
		t := newTask(taskQuiet)
		t.op = op
		e.push(t)
	}
}

// data takes a part of a piece whose operation was not open when it came.
func (e *Engine) data(now step.Time, t *task) {
	if op := e.transfers.find(t.piece.Op); op != nil {
		e.receive(op, t.peer, t.piece, t.off, t.buf)
		return
	}
	e.keep(now, t)
	t.buf.Release()
}

// answer takes a part of the answer to a read. Whoever reads it from the network calls it.
func (e *Engine) answer(peer int, id fabric.ReadID, off int64, b *fabric.Buffer) {
	defer b.Release()
	r := e.reads.find(id, peer)
	if r == nil || !r.op.pins.enter() {
		return
	}
	last, err := r.answered(off, b.B)
	if last {
		e.reads.remove(r.id)
	}
	e.leave(r.op)
	if err != nil {
		(*handler)(e).Lost(peer, err)
	}
	if last {
		t := newTask(taskReadDone)
		t.read = r
		e.push(t)
	}
}
