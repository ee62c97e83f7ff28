package mem

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
)

// maxHeld is the number of parts of one peer that a handler may keep before the peer has to wait.
const maxHeld = 16

// end is the reliable side of one rank. Net.mu guards it.
type end struct {
	net    *Net
	rank   int
	h      fabric.Handler
	links  []*link // to each peer
	reg    map[fabric.OpKey][]byte
	calls  int // calls of the handler that are queued or under way
	closed bool
}

// link is the traffic from one rank to another, and the sender's view of the peer.
type link struct {
	from, to *end
	back     *link
	life     session.Peer
	used     bool // there was traffic
	items    []item
	queued   bool // in Net.runnable
	held     int  // parts that the receiver keeps
	reads    session.Reads
	sent     uint64 // bytes
}

// item is something on its way. Kind is session.Data for a put, Read for a read of either sort.
type item struct {
	kind  session.Kind
	piece fabric.Piece
	req   fabric.ReadRequest
	data  []byte // message, piece, or the reader's buffer
	off   int64  // bytes of a piece or an answer that were delivered
	begun bool
}

// call is a call of a handler.
type call struct {
	end *end
	f   func(fabric.Handler)
}

// Reliable is the reliable side of a rank. All ranks have theirs before one of them sends.
func (n *Net) Reliable(rank int, h fabric.Handler) fabric.Reliable {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := &end{net: n, rank: rank, h: h, links: make([]*link, len(n.ends)), reg: map[fabric.OpKey][]byte{}}
	n.ends[rank] = e
	for i, peer := range n.ends {
		if peer != nil && peer != e {
			out, in := &link{from: e, to: peer, reads: session.Reads{}}, &link{from: peer, to: e, reads: session.Reads{}}
			out.back, in.back = in, out
			e.links[i], peer.links[rank] = out, in
		}
	}
	r := fabric.Reliable{Messages: e, Memory: e, Lifecycle: e}
	if n.cfg.Direct {
		r.Direct = e
	} else {
		r.Reader = e
	}
	return r
}

// deliver is the goroutine that delivers everything.
func (n *Net) deliver() {
	defer close(n.ended)
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		switch {
		case len(n.calls) > 0:
			c := n.calls[0]
			n.calls = n.calls[1:]
			if !c.end.closed {
				n.mu.Unlock()
				c.f(c.end.h)
				n.mu.Lock()
			}
			c.end.calls--
			n.cond.Broadcast()
		case len(n.runnable) > 0:
			l := n.runnable[0]
			n.runnable = n.runnable[1:]
			l.queued = false
			l.step()
			l.run()
			n.cond.Broadcast()
		case n.stopped:
			return
		default:
			n.cond.Wait()
		}
	}
}

// call queues a call of the handler.
func (e *end) call(f func(fabric.Handler)) {
	if !e.closed {
		e.calls++
		e.net.calls = append(e.net.calls, call{e, f})
		e.net.cond.Broadcast()
	}
}

// run makes a link with deliverable items runnable.
func (l *link) run() {
	if len(l.items) > 0 && !l.queued && l.held < maxHeld {
		l.queued = true
		l.from.net.runnable = append(l.from.net.runnable, l)
		l.from.net.cond.Broadcast()
	}
}

func (l *link) push(it item) {
	l.used = true
	l.items = append(l.items, it)
	l.run()
}

// done ends an item of the sender without delivery.
func (l *link) done(it *item, ok bool) {
	to, piece, id := l.to.rank, it.piece, it.req.ReadID
	switch {
	case it.kind == session.Data:
		l.from.call(func(h fabric.Handler) { h.PutDone(to, piece) })
	case it.kind == session.Read && l.from.net.cfg.Direct:
		l.from.call(func(h fabric.Handler) { h.ReadIntoDone(to, id, ok) })
	case it.kind == session.Answer:
		l.reads.End(id.Op)
	}
}

// clear drops all items.
func (l *link) clear() {
	for i := range l.items {
		l.done(&l.items[i], false)
	}
	l.items = nil
}

// step delivers the first item, or one part of it.
func (l *link) step() {
	if len(l.items) == 0 || l.held >= maxHeld {
		return
	}
	it := &l.items[0]
	l.back.used = true
	from, open := l.from.rank, l.back.life.State() == session.Open && !l.to.closed
	over := true
	switch {
	case it.kind == session.Goodbye:
		if report, _ := l.back.life.Goodbye(); report {
			l.to.call(func(h fabric.Handler) { h.Lost(from, fabric.ErrGoodbye) })
		}
		l.back.clear()
	case !open:
		l.done(it, false)
	case it.kind == session.Message:
		msg := it.data
		l.sent += uint64(len(msg))
		l.to.call(func(h fabric.Handler) { h.Message(from, msg) })
	case it.kind == session.Data:
		if over = l.part(it, it.piece.Len, it.data); over {
			l.done(it, true)
		}
	case it.kind == session.Answer:
		buf, ok := l.from.spans(&it.req)
		if over = !ok || l.part(it, int64(len(buf)), buf); over {
			l.done(it, ok)
		}
	case l.from.net.cfg.Direct:
		l.done(it, l.to.readInto(&it.req, it.data))
	default:
		l.answer(it)
	}
	if over && len(l.items) > 0 {
		l.items[0] = item{}
		l.items = l.items[1:]
	}
}

// part delivers the next part of a piece or an answer, and reports whether it was the last.
func (l *link) part(it *item, size int64, data []byte) (last bool) {
	n := min(size-it.off, session.MaxPart)
	off, from, piece, id, kind := it.off, l.from.rank, it.piece, it.req.ReadID, it.kind
	b := &fabric.Buffer{B: bytes.Clone(data[off : off+n]), Free: func(*fabric.Buffer) { l.release() }}
	l.held++
	l.sent += uint64(n)
	it.off, it.begun = off+n, true
	l.to.call(func(h fabric.Handler) {
		if kind == session.Data {
			h.Data(from, piece, off, b)
		} else {
			h.ReadData(from, id, off, b)
		}
	})
	return it.off == size
}

func (l *link) release() {
	l.from.net.mu.Lock()
	defer l.from.net.mu.Unlock()
	l.held--
	l.run()
}

// spans returns the bytes of a read of registered memory.
func (e *end) spans(r *fabric.ReadRequest) (b []byte, ok bool) {
	buf, ok := e.reg[r.Op]
	for _, s := range r.Spans {
		if !ok || s.Off > int64(len(buf)) || s.Len > int64(len(buf))-s.Off {
			return nil, false
		}
		b = append(b, buf[s.Off:s.Off+s.Len]...)
	}
	return b, ok
}

func (e *end) readInto(r *fabric.ReadRequest, buf []byte) bool {
	b, ok := e.spans(r)
	for _, s := range r.Spans {
		if ok {
			b = b[copy(buf[s.Off:s.Off+s.Len], b):]
		}
	}
	return ok
}

// answer queues the answer to a read.
func (l *link) answer(it *item) {
	if _, ok := l.to.spans(&it.req); !ok {
		return
	}
	if err := l.back.reads.Begin(it.req.Op); err != nil {
		l.back.fail(err)
		return
	}
	l.back.push(item{kind: session.Answer, req: it.req})
}

// fail gives up the peer.
func (l *link) fail(err error) {
	peer := l.to.rank
	if report, _ := l.life.Fail(); report && l.used {
		l.from.call(func(h fabric.Handler) { h.Lost(peer, err) })
	}
	l.clear()
}

// send queues an item, unless the peer is gone.
func (e *end) send(to int, it item) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	l := e.links[to]
	if e.closed || l.life.State() != session.Open {
		l.done(&it, false)
		return
	}
	l.push(it)
}

// Send implements fabric.Messages.
func (e *end) Send(to int, msg []byte) {
	e.send(to, item{kind: session.Message, data: bytes.Clone(msg)})
}

// SendMore implements fabric.Messages.
func (e *end) SendMore(to int, msg []byte) { e.Send(to, msg) }

// Put implements fabric.Messages.
func (e *end) Put(to int, p fabric.Piece, data []byte) {
	if int64(len(data)) != p.Len {
		panic(fmt.Sprintf("fabric/mem: a piece of %d bytes with %d", p.Len, len(data)))
	}
	e.send(to, item{kind: session.Data, piece: p, data: data})
}

// Cancel implements fabric.Messages.
func (e *end) Cancel(op fabric.OpKey) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	for _, l := range e.links {
		if l == nil {
			continue
		}
		l.items = slices.DeleteFunc(l.items, func(it item) bool {
			ends := it.kind == session.Data && it.piece.Op == op || it.kind == session.Read && it.req.Op == op &&
				e.net.cfg.Direct
			if ends {
				l.done(&it, false)
			}
			return ends
		})
	}
}

// Read implements fabric.Reader.
func (e *end) Read(to int, r fabric.ReadRequest) { e.ReadInto(to, r, nil) }

// ReadInto implements fabric.DirectReader.
func (e *end) ReadInto(to int, r fabric.ReadRequest, buf []byte) {
	r.Spans = slices.Clone(r.Spans)
	e.send(to, item{kind: session.Read, req: r, data: buf})
}

// Register implements fabric.Memory.
func (e *end) Register(op fabric.OpKey, buf []byte) (ready bool) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	e.reg[op] = buf
	return true
}

// Unregister implements fabric.Memory.
func (e *end) Unregister(op fabric.OpKey) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	delete(e.reg, op)
}

// Drop implements fabric.Lifecycle.
func (e *end) Drop(to int) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	e.links[to].drop()
}

func (l *link) drop() {
	if l.life.Drop() && l.used {
		l.push(item{kind: session.Goodbye})
	}
}

// Flush implements fabric.Lifecycle.
func (e *end) Flush(limit time.Duration) {
	n := e.net
	late := false
	timer := time.AfterFunc(limit, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		late = true
		n.cond.Broadcast()
	})
	defer timer.Stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	for !late && slices.ContainsFunc(e.links, func(l *link) bool { return l != nil && len(l.items) > 0 }) {
		n.cond.Wait()
	}
}

// Stats implements fabric.Lifecycle.
func (e *end) Stats() fabric.ReliableStats {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	s := fabric.ReliableStats{Peers: map[int]fabric.PeerStats{}}
	for i, l := range e.links {
		if l != nil && l.used {
			s.Peers[i] = fabric.PeerStats{Sent: l.sent, Received: l.back.sent}
		}
	}
	return s
}

// Close implements fabric.Lifecycle. It does not wait for a peer that takes nothing.
func (e *end) Close() error {
	n := e.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range e.links {
		if l != nil && !e.closed {
			l.drop()
		}
	}
	for !e.closed {
		busy := e.calls > 0
		for _, l := range e.links {
			if l == nil || len(l.items) == 0 {
				continue
			}
			if l.held >= maxHeld && l.to.calls == 0 {
				l.clear()
			}
			busy = true
		}
		if !busy {
			break
		}
		n.cond.Wait()
	}
	e.closed = true
	return nil
}

// errCrashed is the error that a rank's peers get after Kill.
var errCrashed = errors.New("the peer has crashed")

// Kill ends a rank without a goodbye, as a crash does.
func (n *Net) Kill(rank int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.ends[rank]
	e.closed = true
	for _, l := range e.links {
		if l != nil {
			l.items = nil
			l.back.fail(errCrashed)
		}
	}
}
