//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/allcast/allcast/internal/fabric/session"
)

// A rank connects to a peer when it has something to send to it, or when the peer does. It makes a queue pair and
// introduces itself (lobby.go). The peer makes one too, connects it, and introduces itself in turn:
//
//	caller -> peer    its queue pair         asks
//	peer -> caller    its queue pair, known  asks     the peer's is connected, so the caller may send
//	caller -> peer    known                           the caller's is connected, so the peer may send
//
// A rank repeats its introduction while it asks. Each introduction that asks gets an answer, at any stage. If both
// ranks call at the same time, each takes the other's call for an answer. A frame on the connection says as much as
// the last introduction.

// stage is how far a rank has come in connecting to a peer.
type stage int

const (
	apart   stage = iota // there is no queue pair
	opening              // a goroutine makes the queue pair
	calling              // the peer's queue pair is not known
	halfway              // the queue pair is connected, but perhaps the peer's is not
	linked
)

const (
	firstCall = 20 * time.Millisecond // wait before the second introduction
	lastCall  = 500 * time.Millisecond
)

// link is the making of the connection to a peer.
type link struct {
	stage  stage
	waits  *introduction    // introduction that came while opening
	ah     *C.struct_ibv_ah // address of the peer's lobby
	reg    *region          // memory of the slots
	timer  *time.Timer
	pause  time.Duration // until the next introduction
	expiry time.Time     // after which a peer that does not answer is lost
}

// call begins to connect, unless that was done before. p.mu is held.
func (p *peer) call() {
	if p.link.stage == apart && p.life.State() != session.Gone {
		p.link.stage = opening
		p.r.work.Go(p.open)
	}
}

// queuePair is a new queue pair for a peer.
type queuePair struct {
	qp  *C.struct_ibv_qp
	ah  *C.struct_ibv_ah
	reg *region
	mem []byte
}

// open makes the queue pair. That takes long, because it pins memory and may look for the peer's address.
func (p *peer) open() {
	q, err := p.r.newQueuePair(p)
	p.mu.Lock()
	defer p.unlock()
	p.link.ah, p.link.reg = q.ah, q.reg // RC.free frees them
	if p.life.State() == session.Gone {
		if q.qp != nil {
			C.ibv_destroy_qp(q.qp)
		}
		return
	}
	if err == nil {
		p.install(&q)
		if rc := postRecv(p.qp, nil, &p.in.ring, numbers(p.r.recvSlots)); rc != 0 {
			err = p.fail("post receives", rc)
		}
	}
	if err != nil {
		p.lose(err)
		return
	}
	p.link.stage, p.link.pause, p.link.expiry = calling, firstCall, time.Now().Add(p.r.timeout)
	if i := p.link.waits; i != nil {
		p.link.waits = nil
		p.meet(*i)
		return
	}
	p.introduce()
}

func (r *RC) newQueuePair(p *peer) (q queuePair, err error) {
	d := r.dev
	if err := r.reserve(); err != nil {
		return q, err
	}
	to, err := r.address(p)
	if err != nil {
		return q, err
	}
	if q.mem, q.reg, err = d.mem.allocBy(d.mem.register, (r.sendSlots+r.recvSlots)*session.SlotSize, false); err != nil {
		return q, err
	}
	if q.ah, err = C.ac_peer_ah(d.pd, &to, C.int(d.port), C.int(d.attr.link), C.int(d.gid.index)); q.ah == nil {
		return q, d.errno("create an address handle", err)
	}
	rc := C.ac_rc_qp(d.pd, r.cq.cq, C.int(r.sendSlots+maxReads+1), C.int(r.recvSlots), C.int(d.port), &q.qp)
	if rc != 0 {
		return q, d.failed("create an RC queue pair", int(rc))
	}
	return q, nil
}

// install makes the queue pair that of the peer. p.mu is held.
func (p *peer) install(q *queuePair) {
	r, tag := p.r, uint64(p.rank)<<32
	p.qp, p.qpn = q.qp, uint32(q.qp.qp_num)
	p.out.mem, p.out.free = q.mem[r.recvSlots*session.SlotSize:], numbers(r.sendSlots)
	p.in.mem = q.mem[:r.recvSlots*session.SlotSize]
	p.in.ring = ring{
		base: cu64(address(p.in.mem)), tag: cu64(idRecv | tag), stride: session.SlotSize, key: cu32(q.reg.lkey),
	}
	r.dev.events.own(unsafe.Pointer(p.qp), p.failed)
}

// introduce tells the peer the number of the queue pair, now and again until the connection is made. p.mu is held.
func (p *peer) introduce() {
	l := &p.link
	p.sendIntroduction(introduction{qp: p.qpn, known: l.stage >= halfway, asks: l.stage < linked})
	if l.stage == linked {
		return
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(l.pause, p.introduceAgain)
	} else {
		l.timer.Reset(l.pause)
	}
	l.pause = min(2*l.pause, lastCall)
}

func (p *peer) introduceAgain() {
	p.mu.Lock()
	defer p.unlock()
	switch s := p.link.stage; {
	case p.life.State() == session.Gone || s != calling && s != halfway:
	case time.Now().After(p.link.expiry):
		p.lose(fmt.Errorf("connect: it did not answer for %v", p.r.timeout))
	default:
		p.introduce()
	}
}

func (p *peer) sendIntroduction(i introduction) {
	c := p.r.cards[p.rank]
	i.token, i.from = c.Token, uint32(p.r.rank)
	p.r.lobby.send(i, p.link.ah, c.QP, c.QKey)
}

// meet handles an introduction of the peer. p.mu is held.
func (p *peer) meet(i introduction) {
	l := &p.link
	switch {
	case p.life.State() == session.Gone:
		if i.asks && l.ah != nil {
			p.sendIntroduction(introduction{left: true})
		}
		return
	case i.left:
		if l.stage < linked {
			p.heardGoodbye()
		}
		return
	case l.stage == apart:
		l.waits = &i
		p.call()
		return
	case l.stage == opening:
		l.waits = &i
		return
	case l.stage == calling:
		if err := p.r.connect(p, i.qp); err != nil {
			p.lose(err)
			return
		}
		l.stage = halfway
	}
	if i.known && l.stage == halfway {
		p.linkUp()
	}
	if i.asks {
		p.introduce()
	}
	p.pump()
}

// linkUp notes that the peer's queue pair is connected. p.mu is held.
func (p *peer) linkUp() {
	p.link.stage = linked
	if p.link.timer != nil {
		p.link.timer.Stop()
	}
}
