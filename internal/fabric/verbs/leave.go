//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"errors"
	"time"
	"unsafe"

	"github.com/allcast/allcast/internal/fabric"
)

// drop ends what we have to do with the peer, and lets it have what is queued before.
func (p *peer) drop(bound time.Duration) {
	p.mu.Lock()
	defer p.unlock()
	p.told = true
	p.leave(bound)
}

// leave turns to peerLeaving. p.mu is held.
func (p *peer) leave(bound time.Duration) {
	switch {
	case p.state == peerLeaving && p.told:
		p.settle()
		return
	case p.state != peerOpen:
		return
	}
	if p.used && !p.bye {
		p.queue = append(p.queue, &item{f: frame{kind: frameGoodbye}})
	}
	p.state = peerLeaving
	p.timer = time.AfterFunc(bound, func() {
		p.mu.Lock()
		defer p.unlock()
		p.vanish()
	})
	p.pump()
}

// settle turns from peerLeaving to peerGone when there is nothing left to do, or nobody to
// do it for. p.mu is held.
func (p *peer) settle() {
	if p.state == peerLeaving && (len(p.queue) == 0 && len(p.flying) == 0 || p.bye && p.told && p.reading == 0) {
		p.vanish()
	}
}

// lose gives the peer up. p.mu is held.
func (p *peer) lose(err error) {
	if p.state == peerGone {
		return
	}
	if !p.told {
		p.told = true
		p.notes.lost = err
	}
	p.vanish()
}

// failed takes the failure of the queue pair that the device reports.
func (p *peer) failed(err error) {
	var e *Error
	if errors.As(err, &e) {
		named := *e
		named.QP, named.Peer = p.qpn, p.rank
		err = &named
	}
	p.mu.Lock()
	defer p.unlock()
	p.lose(err)
}

// heardGoodbye is lose for a peer that left in order.
func (p *peer) heardGoodbye() {
	p.bye = true
	if !p.told {
		p.told = true
		p.notes.lost = fabric.ErrGoodbye
	}
	p.leave(flushBound)
	p.settle()
}

// vanish turns to peerGone. When the queue pair is destroyed nothing touches any memory
// any more, so all that was under way has ended. p.mu is held.
func (p *peer) vanish() {
	if p.state == peerGone {
		return
	}
	p.state = peerGone
	if p.timer != nil {
		p.timer.Stop()
	}
	p.r.dev.events.disown(unsafe.Pointer(p.qp))
	C.ibv_destroy_qp(p.qp)
	p.qp = nil
	flying, queue := p.flying, p.queue
	p.flying, p.queue, p.chain = nil, nil, nil
	for _, fl := range flying {
		switch {
		case fl.put != nil:
			fl.put.flying--
			fl.put.cancelled = true
			p.ended(fl.put)
		case fl.read != nil:
			p.readEnded(fl.read, false)
		}
	}
	for _, it := range queue {
		if it.put != nil {
			it.put.cancelled = true
			p.ended(it.put)
		}
	}
	p.readsEnd()
	p.notes.gone = true
}

// notes are what the handler is told when the lock is released.
type notes struct {
	puts  []fabric.Piece
	reads []readNote
	drops []*region
	lost  error
	gone  bool
}

type readNote struct {
	id fabric.ReadID
	ok bool
}

// unlock releases p.mu and then says what there is to say.
func (p *peer) unlock() {
	n := p.notes
	p.notes = notes{}
	idle := len(p.queue) == 0 && len(p.flying) == 0
	p.mu.Unlock()
	for _, r := range n.drops {
		p.r.dev.mem.drop(r)
	}
	for _, piece := range n.puts {
		p.r.h.PutDone(p.rank, piece)
	}
	for _, rd := range n.reads {
		p.r.h.ReadIntoDone(p.rank, rd.id, rd.ok)
	}
	if n.gone {
		p.r.revokedBy(p)
	}
	if n.lost != nil {
		p.r.log.Debug("lost", "peer", p.rank, "err", n.lost)
		p.r.h.Lost(p.rank, n.lost)
	}
	if idle {
		p.r.left()
	}
	if n.gone {
		p.r.gone.Done()
	}
}

var errProtocol = errors.New("it sent what no correct peer sends")

// errRemoved marks a queue pair whose communicator was removed while it sent.
var errRemoved = errors.New("the communicator was removed")
