package engine

import (
	"slices"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/protocol"
)

// A fabric.Placer puts chunks in place outside of the process. Then a receive worker has
// nothing to do with them but to learn from the bitmap which are there, when it is woken,
// and to tell the node: all that follows is as ever. A chunk that comes to the worker all the
// same is claimed by it before it is placed. For what is sealed or summed there is no Placer:
// it does not know keys, and sums take it too long.

// area prepares for the receive buffer of a call.
func (e *Engine) area(k *call) {
	if p := e.cfg.Placer; p != nil && k.plan != nil && k.size > 1 && (k.Kind != protocol.Broadcast || k.Root != k.rank) {
		k.area = p.Area(k.Recv)
	}
}

// place lets a lane's chunks be placed; false: they come to the worker.
func (e *Engine) place(l *lane, sub int) bool {
	op := l.op
	if op.call.area == nil || !e.recvs[sub].polled { // look would be in the way of its own goroutine
		return false
	}
	g := op.geo
	_, mask := e.layout.Split(^uint32(0))
	f := &fabric.Lane{
		Sub: sub, Token: op.token, Comm: op.key.Comm, Imm: e.layout.Imm(op.key.Seq, 0), Mask: mask, Chunk: g.Chunk(), PSNs: g.PSNs(sub),
	}
	f.Own.PSN, f.Own.N = g.Block(sub, op.call.rank)
	g.Blocks(sub, func(off int64, psn, n uint32, tail int) {
		f.Blocks = append(f.Blocks, fabric.Block{Off: off, Run: fabric.Run{PSN: psn, N: n}, Tail: tail})
	})
	if l.placed = e.cfg.Placer.Open(op.call.area, f); l.placed == nil {
		return false
	}
	if l.left = f.PSNs - f.Own.N; l.left >= manyChunks {
		e.bulk.Store(true)
	}
	return true
}

// unseen reports whether chunks were placed that nobody has told us of, and sees that
// somebody does.
func (e *Engine) unseen() bool {
	if e.cfg.Placer == nil {
		return false
	}
	for _, op := range e.ops {
		for _, l := range op.lanes {
			if l != nil && l.placed != nil && l.placed.Unseen() {
				e.cfg.Placer.Wake()
				return true
			}
		}
	}
	return false
}

// look is what the poller calls when chunks were placed.
func (e *Engine) look() {
	for _, w := range e.recvs {
		if !w.polled {
			continue
		}
		w.drain()
		for _, l := range w.ops {
			if l.placed != nil {
				w.learn(l)
			}
		}
		w.flush()
	}
	e.bulk.Store(slices.ContainsFunc(e.recvs, (*receiver).awaitsMany))
}

// awaitsMany reports whether an operation that has not ended still waits for many chunks to
// be placed.
func (w *receiver) awaitsMany() bool {
	if !w.polled {
		return false
	}
	for _, l := range w.ops {
		if l.placed != nil && l.left >= manyChunks && l.mem.Load() != nil {
			return true
		}
	}
	return false
}

// manyChunks take so long that who waits for them may as well sleep.
const manyChunks = 256

// learn takes note of what was placed.
func (w *receiver) learn(l *lane) {
	p := l.mem.Load()
	if p == nil {
		return
	}
	w.runs = l.placed.Scan(w.runs[:0])
	for _, r := range w.runs {
		if stage := l.op.call.area.Stage(); stage != nil {
			w.copyOut(l, *p, stage, r)
		}
		w.noteRun(l, r.PSN, r.N)
		l.left -= r.N
	}
	d, late, foreign := l.placed.Ignored()
	if d+late+foreign > 0 {
		r := w.report()
		r.ignored.Duplicates += d
		r.ignored.Late += late
		r.ignored.Foreign += foreign
		r.comm = l.op.key.Comm
	}
}

// copyOut copies chunks from where they were placed.
func (w *receiver) copyOut(l *lane, mem, stage []byte, r fabric.Run) {
	w.copied.Add(uint64(r.N))
	l.op.geo.Blocks(w.sub, func(_ int64, psn, n uint32, _ int) {
		first, end := max(psn, r.PSN), min(psn+n, r.PSN+r.N)
		if first < end {
			off, length := l.op.geo.Span(w.sub, first, end-first)
			copy(mem[off:off+length], stage[off:off+length])
		}
	})
}

// take takes a chunk that was not placed: it came too early, or was left to us.
func (w *receiver) take(l *lane, mem []byte, psn uint32, payload []byte) {
	if psn < l.op.geo.PSNs(w.sub) {
		if off, _, want := l.op.geo.Locate(w.sub, psn); want == len(payload) {
			if !l.placed.Take(psn) {
				return // it came with others of which not all were taken
			}
			copy(mem[off:], payload)
			w.copied.Add(1)
			l.left--
			w.noteRun(l, psn, 1)
			return
		}
	}
	w.ignore(l, protocol.Foreign)
}
