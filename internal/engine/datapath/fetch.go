package datapath

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

// A fetch makes sums of this rank's block without aggregators, from the inputs of all other ranks. Its chunks are
// fetched in parts, one after the other.
type fetch struct {
	op   *Operation
	psn  uint32 // as in node.Fetch
	n    uint32
	runs []wire.Range // claimed chunks that are not fetched yet
}

// A part is a number of chunks of a fetch. The goroutine that reads the last answer makes the sums.
type part struct {
	*fetch
	runs  []wire.Range  // claimed chunks
	spans []fabric.Span // where they are in every rank's input
	size  int64         // of all spans
	mem   []byte        // inputs of the other ranks, by rank, less this one
	left  atomic.Int32  // ranks whose input is incomplete
}

// Fetch makes n chunks of this rank's block from psn on, except those that are in place or are being placed. Fetched
// reports the end.
func (op *Operation) Fetch(psn, n uint32) {
	f := &fetch{op: op, psn: psn, n: n}
	op.reducing.record.Claim(psn, n, func(i, n uint32) { f.runs = append(f.runs, wire.Range{PSN: i, N: n}) })
	f.next()
}

// next reads the next part, or reports the end.
func (f *fetch) next() {
	op, d := f.op, f.op.d
	if len(f.runs) == 0 {
		d.sink.Report(Event{Kind: Fetched, Op: op, fetch: f})
		return
	}
	n := min(len(f.runs), fabric.MaxSpans)
	p := &part{fetch: f, runs: f.runs[:n]}
	f.runs = f.runs[n:]
	in, g := op.reducing, op.bufs.Group
	for _, q := range p.runs {
		_, _, off, _ := in.layout.At(in.layout.Place(g.Rank, q.PSN))
		_, _, last, length := in.layout.At(in.layout.Place(g.Rank, q.PSN+q.N-1))
		p.spans = append(p.spans, fabric.Span{Off: off, Len: last + length - off})
		p.size += last + length - off
	}
	p.mem = d.scratch.get(int(p.size) * (len(g.Members) - 1))
	p.left.Store(int32(len(g.Members) - 1))
	in.parts = append(in.parts, p)
	for rank, peer := range g.Members {
		if rank == g.Rank {
			continue
		}
		d.lastRead++
		r := &read{id: d.lastRead, op: op, peer: peer, part: p, size: p.size}
		d.reads.add(r.id, r)
		d.rel.Reader.Read(peer, fabric.ReadRequest{ReadID: fabric.ReadID{Op: op.Key, ID: r.id}, Spans: p.spans})
	}
}

// input is the memory for the input of a member.
func (p *part) input(rank int) []byte {
	if rank > p.op.bufs.Group.Rank {
		rank--
	}
	return p.mem[int64(rank)*p.size:][:p.size]
}

// answered keeps a piece of the answer of a read, and reports whether it was the last.
func (p *part) answered(r *read, off int64, b []byte) (last bool, err error) {
	if off != r.got || int64(len(b)) > r.size-off {
		return false, r.violation(off, b)
	}
	rank, _ := p.op.bufs.Group.RankOf(r.peer)
	r.got += int64(copy(p.input(rank)[off:], b))
	return r.got == r.size, nil
}

// arrived counts a complete input. After the last one, it makes the sums. It reports whether it was the last.
func (p *part) arrived() bool {
	if p.left.Add(-1) > 0 {
		return false
	}
	op := p.op
	at := int64(0)
	for i, s := range p.spans {
		p.combine(at, s)
		op.reducing.record.Finish(p.runs[i].PSN, p.runs[i].N)
		at += s.Len
	}
	op.d.inc.count.fetched.Add(uint64(p.size) * uint64(len(op.bufs.Group.Members)-1))
	return true
}

// combineSize is the number of bytes that are added at a time, so that all inputs stay in the processor's cache. It is
// a multiple of the size of any element.
const combineSize = 16 << 10

// combine makes the sums of a span, whose inputs begin at the given offset of every rank's input.
func (p *part) combine(at int64, s fabric.Span) {
	op, a := p.op, p.op.d.inc
	g := op.bufs.Group
	mem := op.d.scratch.get((1 + a.tree.Depth()) * combineSize)
	defer op.d.scratch.put(mem)
	for from := int64(0); from < s.Len; from += combineSize {
		n := min(combineSize, s.Len-from)
		sum := mem[:n]
		a.tree.Combine(sum, g.Members[g.Rank], mem[combineSize:], func(world int) []byte {
			rank, _ := g.RankOf(world)
			return p.input(rank)[at+from:][:n]
		}, func(dst, src []byte) { a.add(op, dst, src) })
		a.finish(op, sum, s.Off+from)
	}
}

// partDone continues a fetch after a part.
func (d *Datapath) partDone(r *read) {
	p, op := r.part, r.op
	if op.state != opOpen {
		return // Release or Quiesce has freed its memory, or will
	}
	in := op.reducing
	in.parts = slices.DeleteFunc(in.parts, func(q *part) bool { return q == p })
	d.scratch.put(p.mem)
	p.next()
}

// dropParts frees the memory of parts whose end control has not heard of. No goroutine uses it any more: the operation
// is complete, and so are its parts, or it is quiet.
func (op *Operation) dropParts() {
	if in := op.reducing; in != nil {
		for _, p := range in.parts {
			op.d.scratch.put(p.mem)
		}
		in.parts = nil
	}
}

// violation is the error of an answer that no correct rank gives.
func (r *read) violation(off int64, b []byte) error {
	return fmt.Errorf("protocol violation: bytes %d to %d of an answer of %d, after byte %d",
		off, off+int64(len(b)), r.size, r.got)
}
