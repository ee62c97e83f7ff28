package ip

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
)

const (
	peerVec   = 128 // elements of one writev
	peerHeads = 48  // headers of data and answers in it
)

// peerWriter is the goroutine that sends to a peer. It gathers queued items into one writev of about
// session.MaxPart bytes.
type peerWriter struct {
	p *peer

	at  int   // index of the next item of peerOutbox.cur
	off int64 // bytes of it that were sent

	vec     [][]byte
	bufs    net.Buffers // the rest of vec
	size    int
	heads   [peerHeads][session.StreamMaxHeader]byte
	nheads  int
	scratch []byte // copies of registered memory
	raw     bool   // the batch consists of records already
	records []byte // output of protect
	small   []byte // scratch memory of protect
	done    []fabric.Piece
}

// run works until the network is closed. It outlives its connection, to report the end of late puts.
func (w *peerWriter) run() {
	for range w.p.wake {
		for w.step() {
		}
		if w.p.state() == session.Gone && w.p.t.closed.Load() { // nothing more can be queued
			w.step() // puts that were queued meanwhile are done
			return
		}
	}
}

// step sends one batch, and reports whether there may be more.
func (w *peerWriter) step() bool {
	p := w.p
	p.mu.Lock()
	out, o, ended := p.out, &p.box, p.links.Ended()
	if o.cut || ended {
		o.cut = false
		o.end(ended)
	}
	if ended {
		o.next.reset()
	}
	if ended || w.at > 0 && w.at == len(o.cur.items) {
		o.cur.reset() // lets go of users' buffers
		w.at, w.off = 0, 0
	}
	more, bye := false, false
	switch {
	case ended || out == nil:
	case w.at < len(o.cur.items):
		more = true
	case len(o.next.items) > 0:
		o.cur, o.next = o.next, o.cur
		more = true
	default:
		bye = p.links.SayGoodbye()
	}
	o.busy = more || bye
	p.mu.Unlock()
	w.notify()
	if !more && !bye {
		w.releaseScratch()
		return false
	}
	if more {
		w.fill()
	} else {
		w.vec, w.raw = append(w.vec[:0], (&session.Frame{Kind: session.Goodbye}).AppendStream(w.heads[0][:0])), false
	}
	err := w.flush(out)
	if err == nil && bye {
		err = out.CloseWrite()
	}
	if err != nil {
		p.outEnded(err)
	}
	return more
}

func (w *peerWriter) notify() {
	p := w.p
	p.mu.Lock()
	w.done, p.box.flying = p.box.flying, w.done[:0]
	p.mu.Unlock()
	for _, piece := range w.done {
		p.t.h.PutDone(p.rank, piece)
	}
}

func (w *peerWriter) fill() {
	cur := &w.p.box.cur
	w.vec, w.size, w.nheads, w.scratch, w.raw = w.vec[:0], 0, 0, w.scratch[:0], false
	for w.at < len(cur.items) && w.size < session.MaxPart && len(w.vec)+2 <= peerVec && w.nheads < peerHeads {
		it := &cur.items[w.at]
		ended := true
		switch it.kind {
		case itemFrames, itemRecord:
			w.add(cur.arena[it.from:it.to])
			// A record was made when nothing else was queued, so it is the first item.
			if w.raw = it.kind == itemRecord; w.raw {
				w.at++
				return
			}
		case itemPiece:
			ended = w.data(it)
		case itemAnswer:
			var full bool
			if ended, full = w.answer(it); full {
				return
			}
			if ended { // sent, or refused: the peer may read again
				w.p.mu.Lock()
				w.p.reads.End(it.read.Op)
				w.p.mu.Unlock()
			}
		}
		if ended {
			w.at++
			w.off = 0
		}
	}
}

func (w *peerWriter) add(b []byte) {
	w.vec = append(w.vec, b)
	w.size += len(b)
}

func (w *peerWriter) head(h *session.Frame) {
	w.add(h.AppendStream(w.heads[w.nheads][:0]))
	w.nheads++
}

// data adds the next part of a piece, and reports whether it was the last.
func (w *peerWriter) data(it *peerItem) bool {
	p := w.p
	n := min(it.piece.Len-w.off, session.MaxPart)
	ended := w.off+n == it.piece.Len
	p.mu.Lock()
	cancelled := it.cancelled
	if ended = ended || cancelled; ended {
		p.box.flying = append(p.box.flying, it.piece)
		it.kind = itemNone
	}
	p.mu.Unlock()
	if cancelled {
		return true
	}
	w.head(&session.Frame{
		Kind: session.Data, N: int(n), Op: it.piece.Op, Nth: it.piece.Nth, Len: it.piece.Len, Off: w.off,
	})
	if n > 0 {
		w.add(it.data[w.off : w.off+n])
	}
	w.off += n
	return ended
}

// answer adds a copy of the next part of an answer. It reports whether the part was the last, or
// whether there is no room for the copy.
func (w *peerWriter) answer(it *peerItem) (ended, full bool) {
	r := &it.read
	if w.scratch == nil {
		w.scratch = scratches.Get().(*[session.MaxPart]byte)[:0]
	}
	n := int(min(it.size-w.off, session.MaxPart))
	at := len(w.scratch)
	if at+n > cap(w.scratch) {
		return false, true
	}
	b := w.scratch[at : at+n]
	ended = true
	if w.p.t.copyOut(b, r, w.off) {
		w.scratch = w.scratch[:at+n]
		w.head(&session.Frame{Kind: session.Answer, N: n, Op: r.Op, ID: r.ID, Len: it.size, Off: w.off})
		w.add(b)
		w.off += int64(n)
		ended = w.off == it.size
	}
	return ended, false
}

// scratches are shared by all connections, because few of them answer reads at the same time.
var scratches = sync.Pool{New: func() any { return new([session.MaxPart]byte) }}

// releaseScratch gives the memory of answers back once everything is written.
func (w *peerWriter) releaseScratch() {
	if w.scratch != nil {
		scratches.Put((*[session.MaxPart]byte)(w.scratch[:session.MaxPart]))
		w.scratch = nil
	}
}

// flush writes the batch. Every write must make progress within the timeout. A write that touches
// cancelled pieces is interrupted, and continues from a copy.
func (w *peerWriter) flush(c *net.TCPConn) error {
	p := w.p
	w.protect()
	for w.bufs = w.vec; len(w.bufs) > 0; {
		p.mu.Lock()
		cut := p.box.cut
		p.box.cut = false
		err := c.SetWriteDeadline(time.Now().Add(p.t.cfg.Timeout))
		p.mu.Unlock()
		if cut {
			w.spill()
			continue
		}
		if err != nil {
			return err
		}
		raceSend(p.t.cfg.Rank, w.bufs...)
		n, err := w.bufs.WriteTo(c)
		p.sent.Add(uint64(n))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.mu.Lock()
			again := n > 0 || p.box.cut
			p.mu.Unlock()
			if again {
				continue
			}
			return fmt.Errorf("it took nothing for %v: %w", p.t.cfg.Timeout, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// protect turns the batch into records, if the connection carries them. It uses memory of its own,
// because users' buffers cannot be sealed in place.
func (w *peerWriter) protect() {
	d := w.p.auth.out
	if d == nil || w.raw {
		return
	}
	const large = 4 << 10 // smaller elements share a record
	w.records, w.small = w.records[:0], w.small[:0]
	for _, b := range w.vec {
		if len(b) < large {
			w.small = append(w.small, b...)
			continue
		}
		w.records = d.Append(d.Append(w.records, w.small), b)
		w.small = w.small[:0]
	}
	w.records = d.Append(w.records, w.small)
	clear(w.vec)
	w.vec = w.vec[:0]
	if len(w.records) > 0 { // a writev of nothing would never end
		w.vec = append(w.vec, w.records)
	}
	if cap(w.records) > 2*peerKeepBytes {
		w.records = nil // such large batches are rare
	}
}

// spill copies the rest of the batch, so that its pieces, and cancelled ones, are done.
func (w *peerWriter) spill() {
	p := w.p
	w.bufs = net.Buffers{slices.Concat(w.bufs...)}
	p.mu.Lock()
	p.box.end(false)
	p.mu.Unlock()
	w.notify()
}
