package datapath

import (
	"slices"
	"sync/atomic"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/wire"
)

// A fabric.Placer places chunks outside of the process. When a receive worker is woken, it learns from
// the words that both share which chunks are in place, and reports them like its own. The worker claims
// a chunk that reaches it beside a Placer before it places the chunk. There is no Placer for sealed
// datagrams, whose keys it does not have, or for datagrams with checksums, which take it too long.

// sharedArea is an Area that a call and its placements use. A placement may stay open after its call has
// ended, and a late datagram for it may still come. If the area belonged to another call by then, the
// kernel would overwrite that call's data.
type sharedArea struct {
	fabric.Area
	users atomic.Int32
}

func newSharedArea(a fabric.Area) *sharedArea {
	s := &sharedArea{Area: a}
	s.users.Store(1)
	return s
}

// leave ends a use. The last user releases the area.
func (a *sharedArea) leave() {
	if a != nil && a.users.Add(-1) == 0 {
		a.Release()
	}
}

// offload lets the Placer receive for a landing, and reports whether it does. It never does for a worker
// with a goroutine of its own, which would run at the same time as look.
func (d *Datapath) offload(l *landing) bool {
	op, p := l.op, l.place
	if op.bufs.area == nil || l.recv.poller == nil {
		return false
	}
	g, own := op.geo, p.Own()
	_, mask := d.cfg.Layout.Split(^uint32(0))
	f := &fabric.PlacementSpec{
		Stream: l.recv.stream, Token: op.token, Comm: op.Key.Comm, Imm: d.cfg.Layout.Imm(op.Key.Seq, 0), Mask: mask,
		Chunk: g.Chunk(), PSNs: p.Len(), Own: fabric.Run{PSN: own.PSN, N: own.N},
	}
	g.Blocks(p.Stream, func(off int64, psn, n uint32, tail int) {
		f.Blocks = append(f.Blocks, fabric.Block{Off: off, Run: fabric.Run{PSN: psn, N: n}, Tail: tail})
	})
	area := op.bufs.area
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
		d.Polling.bulk.Store(true)
	}
	return true
}

// unseen reports whether the kernel has placed chunks that no worker has learned of, and makes the
// poller look for them.
func (d *Datapath) unseen() bool {
	if d.caps.Placer == nil {
		return false
	}
	for _, op := range d.ops {
		if op.state != opOpen {
			continue
		}
		for _, l := range op.landings {
			if l != nil && l.kernel != nil && l.kernel.Counted() != l.seen.Load() {
				d.caps.Placer.Wake()
				return true
			}
		}
	}
	return false
}

// look is what the poller calls when the kernel has placed chunks.
func (d *Datapath) look() {
	for _, w := range d.recvs {
		if w.poller == nil {
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
	d.Polling.bulk.Store(slices.ContainsFunc(d.recvs, (*receiver).awaitsMany))
}

// awaitsMany reports whether the kernel still has to place many chunks of an open operation.
func (w *receiver) awaitsMany() (many bool) {
	if w.poller == nil {
		return false
	}
	w.in.Each(func(p *mcast.Placement) {
		l := p.Data.(*landing)
		many = many || l.kernel != nil && l.left >= manyChunks && l.op.mem.Load() != nil
	})
	return many
}

// manyChunks take so long to arrive that a goroutine that waits for them may as well sleep.
const manyChunks = 256

// learn reports what the kernel has placed.
func (w *receiver) learn(l *landing) {
	mem := l.op.mem.Load()
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
	w.d.Credit.byKernel.Add(counted - l.seen.Swap(counted))
	w.flush(true)
}

// unstage copies chunks from the stage where the kernel has placed them, unless they arrived another way.
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
		l.op.geo.Blocks(p.Stream, func(_ int64, psn, n uint32, _ int) {
			if first, last := max(psn, at), min(psn+n, stop); first < last {
				off, length := l.op.geo.Span(p.Stream, first, last-first)
				copy(mem[off:off+length], stage[off:off+length])
			}
		})
		w.copied.Add(uint64(stop - at))
		w.in.Place(p, wire.Range{PSN: at, N: stop - at})
		at = stop
	}
}
