package datapath

import (
	"maps"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/wire"
)

// read is a read of the slow path. The package comment describes its way.
type read struct {
	id      uint64
	op      *Operation
	landing *landing // nil for a part
	part    *part    // inputs of a reduction; nil: chunks of a multicast
	peer    int
	ranges  []wire.Range  // chunks to claim
	won     []wire.Range  // claimed chunks
	spans   []fabric.Span // where they belong
	size    int64         // of all spans

	// Owned by the goroutine that places the answer.
	got  int64 // bytes in place
	span int   // span of the next part
	at   int64 // offset of the next part in that span
}

// A read covers at most MaxRanges chunks, and has at most as many spans.
const (
	_ = uint(fabric.MaxSpans - wire.MaxRanges)
	_ = uint(fabric.MaxReads - mcast.MaxReads)
)

// findRead returns a read that a peer was asked for; nil: the peer was not asked, or has answered.
func (d *Datapath) findRead(id fabric.ReadID, peer int) *read {
	if r := d.reads.find(id.ID); r != nil && r.op.Key == id.Op && r.peer == peer {
		return r
	}
	return nil
}

// forgetReads forgets the reads of an operation.
func (d *Datapath) forgetReads(op *Operation) {
	d.reads.mu.Lock()
	defer d.reads.mu.Unlock()
	maps.DeleteFunc(d.reads.open, func(_ uint64, r *read) bool { return r.op == op })
}

// claimed asks the peer for the chunks that the receive worker has claimed.
func (d *Datapath) claimed(ev *Event) bool {
	r := ev.read
	op := r.op
	if op.state != opOpen || len(r.won) == 0 {
		return d.readDone(ev)
	}
	for _, q := range r.won {
		off, n := op.geo.Span(r.landing.place.Stream, q.PSN, q.N)
		r.spans = append(r.spans, fabric.Span{Off: off, Len: n})
		r.size += n
	}
	d.reads.add(r.id, r)
	req := fabric.ReadRequest{ReadID: fabric.ReadID{Op: op.Key, ID: r.id}, Spans: r.spans}
	if d.rel.Direct != nil {
		op.users++
		d.rel.Direct.ReadInto(r.peer, req, *op.bufs.mem)
	} else {
		d.rel.Reader.Read(r.peer, req)
	}
	return false
}

// answered places a part of an answer, and reports whether it was the last.
func (r *read) answered(off int64, b []byte) (last bool, err error) {
	if r.part != nil {
		return r.part.answered(r, off, b)
	}
	if off != r.got || int64(len(b)) > r.size-off {
		return false, r.violation(off, b)
	}
	mem := *r.op.bufs.mem
	for len(b) > 0 {
		s := r.spans[r.span]
		n := copy(mem[s.Off+r.at:s.Off+s.Len], b)
		b = b[n:]
		r.got += int64(n)
		if r.at += int64(n); r.at == s.Len {
			r.span, r.at = r.span+1, 0
		}
	}
	if r.got < r.size {
		return false, nil
	}
	r.finish()
	return true, nil
}

// finish records the chunks as in place.
func (r *read) finish() {
	for _, q := range r.won {
		r.landing.place.Finish(q.PSN, q.N)
	}
}

// readDone makes the event of a read whose chunks are in place.
func (d *Datapath) readDone(ev *Event) bool {
	r := ev.read
	if r.op.state != opOpen {
		return false
	}
	ev.Kind, ev.Op, ev.Peer = ReadDone, r.op, r.peer
	d.repaired.Add(uint64(r.size))
	return true
}

// directReadDone takes the end of a read that the fabric has placed.
func (d *Datapath) directReadDone(ev *Event) bool {
	r := d.findRead(fabric.ReadID{Op: ev.Piece.Op, ID: ev.Sum}, ev.Peer)
	if r == nil {
		return false
	}
	d.reads.remove(r.id)
	if ev.N == 0 {
		return false // the peer refused, because its failure is on its way
	}
	d.hear(ev.Peer)
	r.finish()
	ev.read = r
	return d.readDone(ev)
}
