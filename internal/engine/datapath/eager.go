package datapath

import (
	"sync/atomic"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

// An eager operation multicasts from a copy of this rank's block, which stays when the operation is complete:
// ranks that lost chunks read them from it. Forget drops it. A receive worker keeps the datagrams of an
// eager operation that this rank has not begun, in its mcast.Intake.

// copyBlock copies this rank's block of an eager operation, and lets peers read the copy.
func (d *Datapath) copyBlock(op *Operation, own wire.Range) {
	if own.N == 0 {
		return
	}
	op.copied = d.scratch.get(int(op.geo.Bytes()))
	off, n := op.geo.Span(0, own.PSN, own.N)
	if n < op.geo.Bytes() {
		clear(op.copied) // peers must not see what the memory held before
	}
	copy(op.copied[off:off+n], (*op.bufs.mem)[off:off+n])
	d.rel.Register(op.Key, op.copied)
}

// Forget drops the copy of an eager operation that all ranks have finished.
func (d *Datapath) Forget(key fabric.OpKey) {
	if op := d.copies[key]; op != nil {
		delete(d.copies, key)
		op.dropCopy()
	}
}

// dropCopy takes the copy away from peers.
func (op *Operation) dropCopy() {
	if op.copied != nil {
		op.d.rel.Unregister(op.Key)
		op.unwanted = true
		op.freeCopy()
	}
}

// freeCopy reuses the memory of a copy that neither peers nor the send worker read any more.
func (op *Operation) freeCopy() {
	if op.unwanted && op.sending == 0 && op.copied != nil {
		op.d.scratch.put(op.copied)
		op.copied = nil
	}
}

// earlyGroup is what receive workers know of a communicator before its calls are made.
type earlyGroup struct {
	name string
	next atomic.Uint64 // first operation that has not begun
}

// AddGroup lets receive workers keep early datagrams of a communicator.
func (d *Datapath) AddGroup(id uint32, g *Group) {
	g.early = &earlyGroup{name: g.Name}
	d.early.add(id, g.early)
}

// ForgetEarly drops the early datagrams of a communicator that is broken or closed.
func (d *Datapath) ForgetEarly(id uint32) {
	d.early.remove(id)
	if len(d.recvs) > 0 {
		d.recvs[0].command(command{kind: commandForget, comm: id}, d.recvs[0].kept.Load() > 0)
	}
}

// Began says that the operations of a communicator before next have begun.
func (g *Group) Began(next uint64) {
	if g.early != nil {
		g.early.next.Store(next)
	}
}

// earlyTokens is a worker's memory for the token of the next early operation.
type earlyTokens struct {
	tokens *tokens
	group  *earlyGroup
	seq    uint64
	token  uint64
}

// of returns the token of an eager operation.
func (e *earlyTokens) of(g *earlyGroup, seq uint64) uint64 {
	if e.group != g || e.seq != seq {
		e.group, e.seq, e.token = g, seq, e.tokens.eager(g.name, seq)
	}
	return e.token
}

// open makes the worker receive for a landing. It wakes the worker if datagrams of the operation may have
// come already. The worker looks at its commands after it has counted such a datagram, and this goroutine
// looks at the count after it has queued the command. One of them therefore sees the other.
func (w *receiver) open(l *landing) {
	w.command(command{kind: commandOpen, landing: l}, false)
	if l.op.eager && w.kept.Load() > 0 {
		w.rx.Wake()
	}
}

// keep keeps a datagram of an eager operation that this rank has not begun.
func (w *receiver) keep(h wire.Header, payload []byte) bool {
	if w.stream != 0 || w.in.Knows(h.Token) {
		return false
	}
	if !w.in.Keeps(h.Token) {
		g := w.d.early.find(h.Comm)
		if g == nil {
			return false
		}
		slot, _ := w.d.cfg.Layout.Split(h.Imm)
		if w.early.of(g, w.d.cfg.Layout.SeqFrom(g.next.Load(), slot)) != h.Token {
			// This rank may have begun the operation since the worker looked at its commands. It queued the
			// command before it said so (Began).
			w.drain()
			return false
		}
	}
	if !w.in.Keep(h.Token, h.Comm, h.Imm, h.Sum, payload) {
		return false
	}
	w.kept.Store(int32(w.in.Kept()))
	w.drain()
	return true
}

// recall handles the datagrams that came before their operation.
func (w *receiver) recall(op *Operation) {
	if !op.eager || !w.in.Keeps(op.token) {
		return
	}
	was := workerState(w.state.Load())
	w.in.Recall(op.token, func(imm, sum uint32, payload []byte) {
		w.Chunk(wire.Header{Token: op.token, Comm: op.Key.Comm, Imm: imm, Sum: sum}, payload)
	})
	w.kept.Store(int32(w.in.Kept()))
	w.flush(false)
	w.become(was) // the queue may have been empty before
}
