//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"errors"
	"time"
	"unsafe"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
)

// drop ends the connection in order. The handler hears nothing more of the peer.
func (p *peer) drop(bound time.Duration) {
	p.mu.Lock()
	defer p.unlock()
	if p.life.Drop() {
		p.leave(bound)
	}
	p.settle()
}

// leave sends a goodbye behind what is queued, and gives the peer bound to take it. p.mu is held.
func (p *peer) leave(bound time.Duration) {
	if (p.used || len(p.out.queue) > 0) && !p.life.HeardGoodbye() {
		p.out.queue = append(p.out.queue, &item{f: session.Frame{Kind: session.Goodbye}})
	}
	p.timer = time.AfterFunc(bound, func() {
		p.mu.Lock()
		defer p.unlock()
		if p.life.Vanish() {
			p.destroy()
		}
	})
	p.pump()
}

// settle closes a connection that both sides have left. p.mu is held.
func (p *peer) settle() {
	if p.life.Settle(!p.busy(), p.reads.flying == 0) {
		p.destroy()
	}
}

// lose gives up the peer because its connection failed. p.mu is held.
func (p *peer) lose(err error) {
	report, vanish := p.life.Fail()
	if report {
		p.notes.lost = err
	}
	if vanish {
		p.destroy()
	}
}

// failed is lose for a caller that does not hold p.mu. The error may be one of the device or of the
// completion queue, so failed names the peer in it.
func (p *peer) failed(err error) {
	if e := (*Error)(nil); errors.As(err, &e) {
		named := *e
		err = named.on(p.qpn, p.rank)
	}
	p.mu.Lock()
	defer p.unlock()
	p.lose(err)
}

// heardGoodbye takes the goodbye of the peer. p.mu is held.
func (p *peer) heardGoodbye() {
	report, leave := p.life.Goodbye()
	if report {
		p.notes.lost = fabric.ErrGoodbye
	}
	if leave {
		p.leave(flushBound)
	}
	p.settle()
}

// destroy ends everything under way: once the queue pair is destroyed, the device touches no memory.
// p.mu is held.
func (p *peer) destroy() {
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.link.timer != nil {
		p.link.timer.Stop()
	}
	if p.qp != nil {
		p.r.dev.events.disown(unsafe.Pointer(p.qp))
		C.ibv_destroy_qp(p.qp)
		p.qp = nil
	}
	flying, queue := p.requests.flying, p.out.queue
	p.requests.flying, p.requests.chain, p.out.queue = nil, nil, nil
	for _, fl := range flying {
		p.landed(&fl, false)
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

// notes are calls of the handler to make after the lock is released.
type notes struct {
	puts  []fabric.Piece
	reads []*directRead
	lost  error
	gone  bool
}

// unlock releases p.mu, and then makes the calls in notes.
func (p *peer) unlock() {
	n := p.notes
	p.notes = notes{}
	idle := !p.busy()
	p.mu.Unlock()
	for _, piece := range n.puts {
		p.r.h.PutDone(p.rank, piece)
	}
	for _, d := range n.reads {
		p.r.h.ReadIntoDone(p.rank, d.id, d.ok)
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

var errProtocol = errors.New("the peer violates the protocol")
