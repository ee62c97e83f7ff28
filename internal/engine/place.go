package engine

import (
	"slices"
	"sync/atomic"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/wire"
)

// A fabric.Placer puts chunks in place outside of the process. A receive worker then learns from the
// words that both share which chunks are there, when it is woken, and reports them: all that follows
// is the same. A chunk that comes to the worker although a Placer is there is claimed by the worker
// before it is placed. There is no Placer for sealed or summed datagrams: it knows no keys, and sums
// take it too long.

// area prepares for the receive buffer of a call.
func (e *Engine) area(k *call) {
	if p := e.caps.Placer; p != nil && k.plan != nil && k.size > 1 && (k.Kind != wire.Broadcast || k.Root != k.rank) {
		if a := p.Area(k.Recv); a != nil {
			k.area = &sharedArea{Area: a}
			k.area.users.Store(1)
		}
	}
}

// sharedArea is an Area that a call and its placements use. A placement may be open for a while after
// its call has ended, and a late datagram for it may still come. If the area were then another call's,
// the kernel would write over that call's data.
type sharedArea struct {
	fabric.Area
	users atomic.Int32
}

// leave ends a use. The last one releases the area.
func (a *sharedArea) leave() {
	if a != nil && a.users.Add(-1) == 0 {
		a.Release()
	}
}

// offload lets the Placer receive for a landing, and reports whether it does.
func (e *Engine) offload(l *landing) bool {
	op, p := l.op, l.place
	if op.call.area == nil || !e.recvs[p.Sub].polled { // look would be in the way of its own goroutine
		return false
	}
	g, own := op.geo, p.Own()
	_, mask := e.layout.Split(^uint32(0))
	f := &fabric.PlacementSpec{
		Sub: p.Sub, Token: op.token, Comm: op.key.Comm, Imm: e.layout.Imm(op.key.Seq, 0), Mask: mask,
		Chunk: g.Chunk(), PSNs: p.Len(), Own: fabric.Run{PSN: own.PSN, N: own.N},
	}
	g.Blocks(p.Sub, func(off int64, psn, n uint32, tail int) {
		f.Blocks = append(f.Blocks, fabric.Block{Off: off, Run: fabric.Run{PSN: psn, N: n}, Tail: tail})
	})
	area := op.call.area
	if l.kernel = area.Open(f); l.kernel == nil {
		return false
	}
	area.users.Add(1)
	l.area = area
	words := place.Shared(l.kernel.Words(), p.Len())
	if area.Stage() != nil {
		l.staged = words
	} else {
		p.Map = words
	}
	if l.left >= manyChunks {
		e.bulk.Store(true)
	}
	return true
}

// unseen reports whether chunks were placed that nobody has told us of, and sees that
// somebody does.
func (e *Engine) unseen() bool {
	if e.caps.Placer == nil {
		return false
	}
	for _, op := range e.ops {
		for _, l := range op.landings {
			if l != nil && l.kernel != nil && l.kernel.Counted() != l.seen.Load() {
				e.caps.Placer.Wake()
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
		w.in.Each(func(p *mcast.Placement) {
			if l := p.Data.(*landing); l.kernel != nil {
				w.learn(l)
			}
		})
		w.flush(false)
	}
	e.bulk.Store(slices.ContainsFunc(e.recvs, (*receiver).awaitsMany))
}

// awaitsMany reports whether an operation that has not ended still waits for many chunks to
// be placed.
func (w *receiver) awaitsMany() (many bool) {
	if !w.polled {
		return false
	}
	w.in.Each(func(p *mcast.Placement) {
		l := p.Data.(*landing)
		many = many || l.kernel != nil && l.left >= manyChunks && l.mem.Load() != nil
	})
	return many
}

// manyChunks take so long that a goroutine that waits for them may as well sleep.
const manyChunks = 256

// learn takes note of what the kernel has placed.
func (w *receiver) learn(l *landing) {
	mem := l.mem.Load()
	if mem == nil {
		return
	}
	w.flush(false)
	counted := l.kernel.Counted()
	if l.staged == nil {
		w.in.Learn(l.place)
	} else {
		stage := l.area.Stage()
		l.staged.Fresh(func(psn, n uint32) { w.unstage(l, *mem, stage, wire.Range{PSN: psn, N: n}) })
	}
	duplicates, late, foreign := l.kernel.Ignored()
	w.in.Ignore(l.place, mcast.Duplicate, duplicates)
	w.in.Ignore(l.place, mcast.Late, late)
	w.in.Ignore(l.place, mcast.Foreign, foreign)
	w.e.byKernel.Add(counted - l.seen.Swap(counted))
	w.flush(true)
}

// unstage copies chunks from where the kernel has placed them, unless they have come another way.
func (w *receiver) unstage(l *landing, mem, stage []byte, q wire.Range) {
	p := l.place
	for at, end := q.PSN, q.PSN+q.N; at < end; {
		stop := p.NextFree(at, end)
		for ; at < stop; at++ {
			v := mcast.Duplicate
			if p.ForRead(at) {
				v = mcast.Late
			}
			w.in.Ignore(p, v, 1)
		}
		if stop = p.NextTaken(at, end); stop == at {
			continue
		}
		l.op.geo.Blocks(p.Sub, func(_ int64, psn, n uint32, _ int) {
			if first, last := max(psn, at), min(psn+n, stop); first < last {
				off, length := l.op.geo.Span(p.Sub, first, last-first)
				copy(mem[off:off+length], stage[off:off+length])
			}
		})
		w.copied.Add(uint64(stop - at))
		w.in.Place(p, wire.Range{PSN: at, N: stop - at})
		at = stop
	}
}
