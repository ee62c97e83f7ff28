package datapath

import (
	"fmt"
	"slices"
	"sync"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/p2p"
)

// pieces is the data of a point-to-point operation.
type pieces struct {
	inbox *p2p.Inbox
	sums  sums
	pool  *scratch

	mu       sync.Mutex
	arriving map[pieceID]*arriving // incomplete pieces
	held     map[int][]byte        // by receive: complete pieces that came before their turn
	sending  []sending             // puts under way from scratch memory
}

// pieceID names a piece: the nth from a rank.
type pieceID struct {
	from int
	nth  uint32
}

// arriving is a piece whose parts are coming in.
type arriving struct {
	i    int // index of its receive
	recv *p2p.Recv
	kept []byte // scratch memory that holds it until its turn; nil: it is placed as it comes
	next int64  // offset of the next part
}

type sending struct {
	to     int
	nth    uint32
	off    int64
	packed []byte // scratch memory of a piece that consists of parts
}

func newPieces(b *Buffers, inbox *p2p.Inbox, pool *scratch) *pieces {
	p := &pieces{inbox: inbox, sums: newSums(b, pool), pool: pool}
	if b.Plan != nil {
		for _, c := range b.Plan.Before {
			if c.To >= b.Plan.Input+b.Plan.Output { // the caller of Prepare has filled the receive buffer
				p.copy(c)
			}
		}
	}
	return p
}

// copy carries out a copy of the plan.
func (p *pieces) copy(c p2p.Copy) {
	copy(p.sums.memory(c.To, c.Len), p.sums.source(c.From, c.Len, false))
}

// source is the memory of a piece to send, in use until sent.
func (p *pieces) source(to int, nth uint32, s *p2p.Send) []byte {
	if s.Len == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.Parts != nil {
		packed := p.pool.get(int(s.Len))
		at := 0
		for _, part := range s.Parts {
			at += copy(packed[at:], p.sums.source(part.Off, part.Len, false))
		}
		p.sending = append(p.sending, sending{to: to, nth: nth, packed: packed})
		return packed
	}
	if !s.Input && len(p.sums.areas) > 0 {
		p.sending = append(p.sending, sending{to: to, nth: nth, off: s.Off})
	}
	return p.sums.source(s.Off, s.Len, s.Input)
}

// sent ends the use of a piece that was sent.
func (p *pieces) sent(to int, nth uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, s := range p.sending {
		if s.to == to && s.nth == nth {
			if s.packed != nil {
				p.pool.put(s.packed)
			} else {
				p.sums.sent(s.off)
			}
			p.sending = slices.Delete(p.sending, i, i+1)
			return
		}
	}
}

// take places a part of a piece from a rank of the communicator. It reports whether a piece is complete
// with it and how far the operation is. It fails if no correct rank sends such a part.
func (p *pieces) take(from int, piece fabric.Piece, off int64, b []byte) (prefix, left int, more bool, err error) {
	p.mu.Lock()
	a := p.part(from, piece, off, int64(len(b)))
	p.mu.Unlock()
	if a == nil {
		return 0, 0, false, nil
	}
	if len(b)%p.sums.size != 0 {
		return 0, 0, false, fmt.Errorf("protocol violation: %d bytes of elements of %d", len(b), p.sums.size)
	}
	if a.kept != nil {
		copy(a.kept[off:], b)
	} else {
		p.place(a.recv, off, b)
	}
	if a.next < piece.Len {
		return 0, 0, false, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.arriving, pieceID{from, piece.Nth})
	if a.kept != nil {
		if p.held == nil {
			p.held = map[int][]byte{}
		}
		p.held[a.i] = a.kept
	}
	p.inbox.Arrived(a.i)
	for i := p.inbox.Next(); i >= 0; i = p.inbox.Next() {
		kept := p.held[i]
		delete(p.held, i)
		p.mu.Unlock()
		p.place(p.inbox.Recv(i), 0, kept)
		p.mu.Lock()
		if kept != nil { // nil: the piece is empty
			p.pool.put(kept)
		}
		p.inbox.Arrived(i)
	}
	prefix, left = p.inbox.Progress()
	return prefix, left, true, nil
}

// part finds the piece that a part belongs to, and notes that the part has come; nil: the operation does
// not expect it. The caller holds p.mu.
func (p *pieces) part(from int, piece fabric.Piece, off, n int64) *arriving {
	id := pieceID{from, piece.Nth}
	a := p.arriving[id]
	if a == nil && off == 0 && n <= piece.Len {
		i, recv, hold, ok := p.inbox.Take(from, piece.Nth, piece.Len)
		if !ok {
			return nil // its other parts are not expected either
		}
		a = &arriving{i: i, recv: recv}
		if hold && piece.Len > 0 {
			a.kept = p.pool.get(int(piece.Len))
		}
		if n < piece.Len {
			if p.arriving == nil {
				p.arriving = map[pieceID]*arriving{}
			}
			p.arriving[id] = a
		}
	}
	if a == nil || a.recv.Len != piece.Len || a.next != off || n > piece.Len-off {
		return nil
	}
	a.next += n
	return a
}

// place writes bytes to where they belong, or adds them to the sum there.
func (p *pieces) place(r *p2p.Recv, off int64, b []byte) {
	p.sums.take(p.mu.Lock, p.mu.Unlock, r, r.Off+off, b)
}

// finish carries out the copies after the last receive of a plan.
func (p *pieces) finish(copies []p2p.Copy) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range copies {
		p.copy(c)
	}
}

// release gives back all scratch memory. Nothing is under way any more.
func (p *pieces) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sending {
		if s.packed != nil {
			p.pool.put(s.packed)
		}
	}
	p.sending = nil
	for _, a := range p.arriving {
		if a.kept != nil {
			p.pool.put(a.kept)
		}
	}
	for _, b := range p.held {
		p.pool.put(b)
	}
	p.arriving, p.held = nil, nil
	p.sums.release()
}
