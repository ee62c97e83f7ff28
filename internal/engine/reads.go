package engine

import (
	"fmt"
	"sync"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/observe"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// read is a read of the slow path. It goes from the control side to the receive worker, which claims
// its chunks, back to the control side, which asks the peer for those that were won, and then to
// whoever reads the answer from the network.
type read struct {
	id      uint64
	op      *operation
	landing *landing
	peer    int
	ranges  []wire.Range  // chunks to claim
	won     []wire.Range  // of these, the chunks that the read places
	spans   []fabric.Span // where they belong
	size    int64         // of all of them

	// Of whoever takes the answer.
	got  int64 // so much of it is in place
	span int   // the next part belongs here,
	at   int64 // from here on
}

// A read covers at most MaxRanges chunks, and so as many spans.
const (
	_ = uint(fabric.MaxSpans - wire.MaxRanges)
	_ = uint(fabric.MaxReads - mcast.MaxReads)
)

// reads are those that a peer was asked for.
type reads struct {
	mu   sync.Mutex
	open map[uint64]*read
}

func (r *reads) add(x *read) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[x.id] = x
}

// find returns a read that a peer was asked for; nil: it was not, or it is over.
func (r *reads) find(id fabric.ReadID, peer int) *read {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x := r.open[id.ID]; x != nil && x.op.key == id.Op && x.peer == peer {
		return x
	}
	return nil
}

func (r *reads) remove(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, id)
}

// forget forgets the reads of an operation.
func (r *reads) forget(op *operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, x := range r.open {
		if x.op == op {
			delete(r.open, id)
		}
	}
}

// read asks the receive worker to claim chunks.
func (e *Engine) read(op *operation, a *node.Action) {
	e.readIDs++
	r := &read{id: e.readIDs, op: op, landing: op.landings[a.Sub], peer: a.To, ranges: a.Ranges}
	t := newTask(cmdClaim)
	t.read = r
	e.recvs[a.Sub].command(t, true)
}

// claimed asks the peer for the chunks that were won.
func (e *Engine) claimed(now step.Time, r *read) {
	op := r.op
	if op.gone {
		return
	}
	if len(r.won) == 0 {
		e.node.ReadDone(now, op.key.Comm, op.key.Seq, r.landing.place.Sub, nil)
		return
	}
	for _, q := range r.won {
		off, n := op.geo.Span(r.landing.place.Sub, q.PSN, q.N)
		r.spans = append(r.spans, fabric.Span{Off: off, Len: n})
		r.size += n
	}
	e.reads.add(r)
	req := fabric.ReadRequest{ReadID: fabric.ReadID{Op: op.key, ID: r.id}, Spans: r.spans}
	if e.rel.Direct != nil {
		op.placing++
		e.rel.Direct.ReadInto(r.peer, req, *op.call.mem)
		return
	}
	e.rel.Reader.Read(r.peer, req)
}

// answered puts a part of an answer in place, and reports whether it was the last. Whoever reads it
// from the network calls it.
func (r *read) answered(off int64, b []byte) (last bool, err error) {
	if off != r.got || int64(len(b)) > r.size-off {
		return false, fmt.Errorf("it sent what no correct peer sends: bytes %d to %d of an answer of %d, of which it had sent %d",
			off, off+int64(len(b)), r.size, r.got)
	}
	mem := *r.op.call.mem
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

// finish says that the chunks are in place.
func (r *read) finish() {
	for _, q := range r.won {
		r.landing.place.Finish(q.PSN, q.N)
	}
}

// readDone tells the node of a read whose chunks are in place.
func (e *Engine) readDone(now step.Time, r *read) {
	if r.op.gone {
		return
	}
	key := r.op.key
	e.node.ReadDone(now, key.Comm, key.Seq, r.landing.place.Sub, r.won)
	e.repaired.Add(uint64(r.size))
	e.note(observe.Event{Kind: observe.Repaired, Comm: key.Comm, Seq: key.Seq, Peer: int32(r.peer), N: r.size})
}

// readPlaced takes the end of a read that the fabric has put in place.
func (e *Engine) readPlaced(now step.Time, t *task) {
	if op := e.failing[t.readID.Op]; op != nil {
		e.quiet(op)
		return
	}
	r := e.reads.find(t.readID, t.peer)
	if r == nil {
		return
	}
	r.op.placing--
	e.reads.remove(r.id)
	if t.n == 0 {
		return // refused: our own failure is on its way
	}
	e.node.Heard(now, t.peer)
	r.finish()
	e.readDone(now, r)
}
