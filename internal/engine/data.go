package engine

import (
	"fmt"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/observe"
	"github.com/allcast/allcast/internal/protocol"
	"github.com/allcast/allcast/internal/reduce"
)

// read is a read of the slow path.
type read struct {
	op     *operation
	peer   int
	sub    int
	psn, n uint32
	off    int64
	length int64
	asked  bool // the worker keeps off, and the peer was asked
}

// read asks the receive worker to keep off the chunks, then the peer for them.
func (e *Engine) read(op *operation, a *node.Action) {
	e.readIDs++
	r := &read{op: op, peer: a.To, sub: a.Sub, psn: a.PSN, n: a.N}
	r.off, r.length = op.geo.Span(a.Sub, a.PSN, a.N)
	e.reads[e.readIDs] = r
	t := newTask(cmdClaim)
	t.lane, t.id, t.psn, t.n = op.lanes[a.Sub], e.readIDs, a.PSN, a.N
	e.recvs[a.Sub].command(t, true)
}

func (e *Engine) claimed(id uint64) {
	if r := e.reads[id]; r != nil {
		r.asked = true
		rng := fabric.Range{Op: r.op.key, ID: id, Off: r.off, Len: r.length}
		if e.direct != nil {
			r.op.placing++
			e.direct.ReadInto(r.peer, rng, (*r.op.call.mem)[r.off:r.off+r.length])
			return
		}
		e.rel.Read(r.peer, rng)
	}
}

// readPlaced takes the end of a read that the fabric has put in place.
func (e *Engine) readPlaced(now protocol.Time, t *task) {
	if op := e.failing[t.rng.Op]; op != nil {
		e.quiet(op)
		return
	}
	r := e.reads[t.rng.ID]
	if r == nil || r.op.key != t.rng.Op {
		return
	}
	r.op.placing--
	if t.n == 0 {
		return // refused: it has no answer
	}
	e.node.Heard(now, t.peer)
	e.readDone(now, t.rng.ID, r)
}

// readData puts what was read in its place.
func (e *Engine) readData(now protocol.Time, t *task) {
	defer t.buf.Release()
	e.node.Heard(now, t.peer)
	r := e.reads[t.rng.ID]
	n := int64(len(t.buf.B))
	if r == nil || !r.asked || r.peer != t.peer || r.op.key != t.rng.Op || t.off < 0 || t.off+n > r.length {
		return
	}
	copy((*r.op.call.mem)[r.off+t.off:], t.buf.B)
	if t.off+n < r.length {
		return
	}
	e.readDone(now, t.rng.ID, r)
}

// readDone says that a read is in place.
func (e *Engine) readDone(now protocol.Time, id uint64, r *read) {
	delete(e.reads, id)
	e.node.ReadDone(now, r.op.key.Comm, r.op.key.Seq, r.sub, r.psn, r.n)
	e.repaired.Add(uint64(r.length))
	e.note(observe.Event{Kind: observe.Repaired, Comm: r.op.key.Comm, Seq: r.op.key.Seq, Peer: int32(r.peer), N: r.length})
}

type pieceKey struct {
	op   fabric.OpKey
	peer int
	nth  uint32
}

// piece is a put that is coming in.
type piece struct {
	op    *operation
	where node.Place
	held  []byte // for later; nil: it is placed as it comes
}

// data takes a part of a piece.
func (e *Engine) data(now protocol.Time, t *task) {
	defer t.buf.Release()
	if !t.kept {
		// What it sends next, heartbeats too, comes after all of the piece: every part
		// says that it is alive.
		e.node.Heard(now, t.peer)
	}
	key := pieceKey{t.piece.Op, t.peer, t.piece.Nth}
	op := e.ops[key.op]
	if op == nil {
		e.keep(now, t)
		return
	}
	if int64(len(t.buf.B)) == t.piece.Len && !op.call.reduces() {
		// All of it at once, as most come.
		if where, ok := e.node.Data(now, t.peer, key.op.Comm, key.op.Seq, key.nth, t.piece.Len); ok {
			op.take(where.Off, t.buf.B, false)
		}
		return
	}
	p := e.pieces[key]
	if t.off == 0 {
		// What nobody wants is not remembered, so its other parts are not wanted either.
		delete(e.pieces, key)
		where, ok := e.node.Expect(t.peer, key.op.Comm, key.op.Seq, key.nth, t.piece.Len)
		if !ok {
			return
		}
		p = &piece{op: op, where: where}
		if where.Hold {
			p.held = make([]byte, t.piece.Len)
		}
		e.pieces[key] = p
	}
	n := int64(len(t.buf.B))
	if p == nil || t.off+n > t.piece.Len {
		return
	}
	switch {
	case p.held != nil:
		copy(p.held[t.off:], t.buf.B)
	case p.where.Reduce && n%int64(op.call.Type.Size()) != 0:
		e.lost(now, t.peer, fmt.Errorf("it sent what no correct peer sends: %d bytes of %v", n, op.call.Type))
		return
	default:
		op.take(p.where.Off+t.off, t.buf.B, p.where.Reduce)
	}
	if t.off+n < t.piece.Len {
		return
	}
	where, ok := e.node.Data(now, t.peer, key.op.Comm, key.op.Seq, key.nth, t.piece.Len)
	switch {
	case !ok:
		delete(e.pieces, key)
	case where.Hold:
		// Until its turn comes: Apply.
	default:
		if p.held != nil {
			op.take(where.Off, p.held, where.Reduce)
		}
		delete(e.pieces, key)
	}
}

// apply takes a piece whose turn has come.
func (e *Engine) apply(key pieceKey, off int64) {
	if p := e.pieces[key]; p != nil {
		p.op.take(off, p.held, true)
		delete(e.pieces, key)
	}
}

// take puts bytes in place or adds them to what is there.
func (op *operation) take(off int64, b []byte, add bool) {
	dst := (*op.call.mem)[off : off+int64(len(b))]
	if !add {
		copy(dst, b)
		return
	}
	// Pieces hold whole elements, and parts of them too: data has seen to it.
	if err := reduce.Into(dst, b, op.call.Type, op.call.Op); err != nil {
		panic("engine: " + err.Error())
	}
}
