//go:build verbs

package verbs

import (
	"fmt"
	"slices"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
)

// putCopy is the largest unregistered piece that is copied: registering it takes longer.
const putCopy = 64 << 10

// put is a piece that is being sent.
type put struct {
	piece       fabric.Piece
	data        []byte
	user        *region // nil: the piece is copied
	held        hold    // on user: holdOwner if the region was registered for this piece
	registering bool    // a goroutine is registering it; nothing is sent before
	off         int64   // bytes that are in requests
	whole       bool    // all parts are in requests
	flying      int     // requests in flight
	cancelled   bool
	done        bool // PutDone was called, or will be
}

// Put implements fabric.Messages. A large piece that is not registered waits in the queue until a
// goroutine has registered it. Later messages and pieces to the peer wait behind it, which keeps the
// order; credit overtakes it.
func (r *RC) Put(to int, piece fabric.Piece, data []byte) {
	if int64(len(data)) != piece.Len {
		panic(fmt.Sprintf("fabric/verbs: piece of %d bytes with %d", piece.Len, len(data)))
	}
	p := r.peer(to)
	u := &put{piece: piece, data: data, held: holdUser}
	if len(data) > 0 {
		u.user = r.mem.find(data, holdUser)
	}
	p.mu.Lock()
	defer p.unlock()
	if p.life.State() != session.Open {
		u.cancelled = true
		p.ended(u)
		return
	}
	p.out.queue = append(p.out.queue, &item{f: session.Frame{Kind: session.Data}, put: u})
	if u.user == nil && len(data) > putCopy {
		u.registering = true
		r.work.Go(func() { p.register(u) })
		return
	}
	p.pump()
}

// register registers a piece. If that fails, the piece is copied.
func (p *peer) register(u *put) {
	reg, err := p.r.mem.acquire(u.data)
	p.mu.Lock()
	defer p.unlock()
	u.registering = false
	if err == nil {
		u.user, u.held = reg, holdOwner
	}
	p.ended(u)
	p.pump()
}

// encodePut makes the next part of a piece a request, and reports whether the part was the last. p.mu
// is held, and there is room.
func (p *peer) encodePut(u *put) bool {
	if u.cancelled {
		p.ended(u)
		return true
	}
	part := u.data[u.off:][:min(int64(len(u.data))-u.off, session.SlotPayload)]
	f := session.Frame{Kind: session.Data, Op: u.piece.Op, Nth: u.piece.Nth, Len: u.piece.Len, Off: u.off}
	var of *put // nil: the part is copied, and the device does not touch it
	if u.user != nil {
		of = u
		u.flying++
	}
	u.off += int64(len(part))
	u.whole = u.off == u.piece.Len
	p.encode(&f, part, of)
	p.ended(u)
	return u.whole
}

// ended reports the end of a put once the device no longer needs its memory. p.mu is held.
func (p *peer) ended(u *put) {
	if u.done || u.registering || u.flying > 0 || !u.whole && !u.cancelled {
		return
	}
	u.done = true
	if u.user != nil {
		p.r.mem.release(u.user, u.held)
	}
	p.notes.puts = append(p.notes.puts, u.piece)
}

// Cancel implements fabric.Messages. Pieces stop between two parts, and reads that have not been
// posted never are.
func (r *RC) Cancel(op fabric.OpKey) {
	for p := range r.others {
		p.mu.Lock()
		p.cancelPuts(op)
		p.cancelReads(op)
		p.pump()
		p.unlock()
	}
}

// cancelPuts cancels the pieces of an operation. p.mu is held.
func (p *peer) cancelPuts(op fabric.OpKey) {
	p.out.queue = slices.DeleteFunc(p.out.queue, func(it *item) bool {
		if it.put == nil || it.put.piece.Op != op {
			return false
		}
		it.put.cancelled = true
		p.ended(it.put)
		return true
	})
	for _, fl := range p.requests.flying {
		if fl.put != nil && fl.put.piece.Op == op {
			fl.put.cancelled = true
		}
	}
}

// maxHeld is the number of parts of a peer that the handler may hold before the peer gets no more
// room. The next release gives it room again.
const maxHeld = 16

// data handles a frame of a piece.
func (p *peer) data(f *session.Frame, payload []byte) error {
	if err := p.in.order.Next(f); err != nil {
		return err
	}
	if f.Off%session.MaxPart == 0 {
		p.in.part = make([]byte, 0, min(session.MaxPart, f.Len-f.Off))
	}
	part := p.in.part
	if len(part)+len(payload) > cap(part) {
		return fmt.Errorf("%w: %d bytes at %d of %d cross the end of a part", session.ErrMalformed, f.N, f.Off, f.Len)
	}
	part = append(part, payload...)
	if p.in.part = part; len(part) < cap(part) {
		return nil
	}
	p.in.part = nil
	b := &fabric.Buffer{B: part, Free: func(*fabric.Buffer) { p.released() }}
	p.mu.Lock()
	p.in.held++
	p.mu.Unlock()
	p.r.h.Data(p.rank, f.Piece(), f.Off+int64(len(payload)-len(part)), b)
	return nil
}

// released handles the release of a part.
func (p *peer) released() {
	p.mu.Lock()
	defer p.unlock()
	p.in.held--
	if p.in.held == maxHeld-1 {
		p.postAgain()
	}
}
