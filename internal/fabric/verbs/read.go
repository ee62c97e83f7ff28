//go:build verbs

package verbs

import (
	"fmt"
	"slices"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
)

// # Who may read
//
// A rank that misses chunks asks its neighbour once per operation where the buffer is (Ask, Here), and
// then reads from it straight to where the chunks belong. The neighbour's process does not notice the
// reads, so it cannot prevent that the user gets the buffer back meanwhile. After an error that may
// happen at any time. Two rules keep this correct.
//
// First, bytes that were read are valid only after the peer has said that the buffer was still
// registered when the read had ended (Check, Checked). Once Unregister has returned, no read that is
// unfinished or starts later can therefore succeed. The device may still read the memory, which does
// not harm its owner.
//
// Second, the registration outlives Unregister until all peers that know of it have forgotten it
// (Revoke, Revoked) or are gone. A read of unregistered memory would be an error that ends the
// connection, and a living rank would be taken for dead. Meanwhile the memory is pinned.
//
// If no chunk is lost, ranks ask nothing, and none of this happens.

// reads is the reads of a peer's memory.
type reads struct {
	remotes map[fabric.OpKey]*remote
	ready   []*directRead // reads that can be posted
	flying  int           // RDMA READs in flight
	max     int           // of flying
}

// remote is the buffer of an operation at a peer.
type remote struct {
	remoteMemory
	known   bool
	len     int64
	waiting []*directRead // reads that wait for an answer about the buffer
	active  int           // reads that have not ended
	revoked bool          // the peer waits until they have ended
}

// holds reports whether all spans are inside the buffer.
func (m *remote) holds(spans []fabric.Span) bool {
	return !slices.ContainsFunc(spans, func(s fabric.Span) bool { return s.Off > m.len || s.Len > m.len-s.Off })
}

// directRead is a read under way.
type directRead struct {
	id     fabric.ReadID
	spans  []fabric.Span // spans that are not, or not fully, in requests
	off    int64         // bytes of the first span that are in requests
	buf    []byte
	user   *region
	rem    *remote
	flying int
	failed bool
	check  bool // all bytes are here, and a Check is under way
	done   bool
	ok     bool // result, once done
}

// ReadInto implements fabric.DirectReader.
func (r *RC) ReadInto(to int, req fabric.ReadRequest, buf []byte) {
	if len(req.Spans) > fabric.MaxSpans {
		panic(fmt.Sprintf("fabric/verbs: a read of %d spans", len(req.Spans)))
	}
	p := r.peer(to)
	d := &directRead{id: req.ReadID, buf: buf, spans: make([]fabric.Span, 0, len(req.Spans))}
	for _, s := range req.Spans {
		if s.Off < 0 || s.Len < 0 || s.Off > int64(len(buf)) || s.Len > int64(len(buf))-s.Off {
			panic(fmt.Sprintf("fabric/verbs: a read of %d bytes at %d to a buffer of %d", s.Len, s.Off, len(buf)))
		}
		if s.Len > 0 {
			d.spans = append(d.spans, s)
		}
	}
	if len(d.spans) > 0 {
		d.user = r.mem.find(buf, holdUser)
	}
	p.mu.Lock()
	defer p.unlock()
	if p.life.State() != session.Open || d.user == nil {
		p.readOver(d, p.life.State() == session.Open && len(d.spans) == 0)
		return
	}
	rem := p.reads.remotes[d.id.Op]
	first := rem == nil
	if first {
		rem = &remote{}
		p.reads.remotes[d.id.Op] = rem
	}
	if rem.revoked || rem.known && !rem.holds(d.spans) {
		p.readOver(d, false)
		return
	}
	d.rem = rem
	rem.active++
	if rem.known {
		p.reads.ready = append(p.reads.ready, d)
		p.pump()
		return
	}
	// The read is in the list before anything is sent, since sending may fail.
	rem.waiting = append(rem.waiting, d)
	if first {
		r.ask(p, d.id.Op)
		p.control(session.Frame{Kind: session.Ask, Op: d.id.Op})
	}
}

// here handles the answer about a buffer. p.mu is held.
func (p *peer) here(f *session.Frame) {
	rem := p.reads.remotes[f.Op]
	if rem == nil || rem.known {
		return
	}
	waiting := rem.waiting
	rem.waiting = nil
	rem.known, rem.remoteMemory, rem.len = true, remoteMemory{f.ID, f.RKey}, f.Len
	for _, d := range waiting {
		if f.No || !rem.holds(d.spans) {
			p.readOver(d, false)
			continue
		}
		p.reads.ready = append(p.reads.ready, d)
	}
	if f.No {
		delete(p.reads.remotes, f.Op)
	}
	p.pump()
}

// fillReads makes requests from reads. p.mu is held.
func (p *peer) fillReads() {
	for len(p.reads.ready) > 0 && p.reads.flying < p.reads.max && !p.requests.full() {
		d := p.reads.ready[0]
		s := d.spans[0]
		n := min(s.Len-d.off, maxRead)
		at := d.buf[s.Off+d.off:][:n]
		q := request{
			op: opRead, addr0: cu64(address(at)), len0: cu32(len(at)), key0: cu32(d.user.lkey),
			remote: cu64(d.rem.addr + uint64(s.Off+d.off)), rkey: cu32(d.rem.rkey),
		}
		// Completions come in order, so a frame behind a read cannot complete before it.
		p.requests.add(q, flight{slot: -1, read: d})
		p.r.counters.reads.Add(1)
		p.reads.flying++
		d.flying++
		p.recvd.Add(uint64(n))
		if d.off += n; d.off == s.Len {
			d.spans, d.off = d.spans[1:], 0
		}
		if len(d.spans) == 0 {
			p.reads.ready = p.reads.ready[1:]
		}
	}
}

// readEnded handles the end of one request of a read. p.mu is held.
func (p *peer) readEnded(d *directRead, ok bool) {
	p.reads.flying--
	d.flying--
	d.failed = d.failed || !ok
	switch {
	case d.flying > 0 || d.done:
	case d.failed:
		p.readOver(d, false)
	case len(d.spans) == 0:
		d.check = true
		d.rem.waiting = append(d.rem.waiting, d)
		p.r.counters.checks.Add(1)
		p.control(session.Frame{Kind: session.Check, Op: d.id.Op, ID: d.id.ID})
	}
}

// checked handles the answer to a Check. p.mu is held.
func (p *peer) checked(f *session.Frame) {
	rem := p.reads.remotes[f.Op]
	if rem == nil {
		return
	}
	for i, d := range rem.waiting {
		if d.check && d.id.ID == f.ID {
			rem.waiting = slices.Delete(rem.waiting, i, i+1)
			p.readOver(d, !f.No)
			return
		}
	}
}

// readOver ends a read. p.mu is held.
func (p *peer) readOver(d *directRead, ok bool) {
	if d.done {
		return
	}
	d.done, d.ok = true, ok
	if d.user != nil {
		p.r.mem.release(d.user, holdUser)
	}
	p.notes.reads = append(p.notes.reads, d)
	if d.rem == nil {
		return
	}
	d.rem.active--
	if d.rem.active == 0 && d.rem.revoked {
		p.forget(d.id.Op)
	}
}

// revoke forgets a buffer, now or when its last read has ended. p.mu is held.
func (p *peer) revoke(op fabric.OpKey) {
	rem := p.reads.remotes[op]
	if rem == nil || rem.active == 0 {
		p.forget(op)
		return
	}
	rem.revoked = true
}

func (p *peer) forget(op fabric.OpKey) {
	delete(p.reads.remotes, op)
	p.control(session.Frame{Kind: session.Revoked, Op: op})
}

// cancelReads ends the reads of an operation that have no request in flight. The others end with their
// last request. p.mu is held.
func (p *peer) cancelReads(op fabric.OpKey) {
	var over []*directRead // removed from all lists first, since the end of a read may post others
	p.reads.ready = slices.DeleteFunc(p.reads.ready, func(d *directRead) bool {
		if d.id.Op == op && d.flying == 0 {
			over = append(over, d)
		}
		return d.id.Op == op
	})
	for _, fl := range p.requests.flying {
		if fl.read != nil && fl.read.id.Op == op {
			fl.read.failed = true
		}
	}
	if rem := p.reads.remotes[op]; rem != nil {
		over = append(over, rem.waiting...)
		rem.waiting = nil
	}
	for _, d := range over {
		p.readOver(d, false)
	}
}

// readsEnd ends all reads, since the peer is gone. p.mu is held.
func (p *peer) readsEnd() {
	over := p.reads.ready
	p.reads.ready = nil
	for _, rem := range p.reads.remotes {
		over = append(over, rem.waiting...)
		rem.waiting = nil
	}
	clear(p.reads.remotes)
	for _, d := range over {
		p.readOver(d, false)
	}
}
