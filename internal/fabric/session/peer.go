package session

import (
	"errors"

	"github.com/allcast/allcast/internal/fabric"
)

// State is the state of a peer. It only grows.
type State uint8

// The states of a peer.
const (
	Open    State = iota
	Leaving       // dropped, or one side said goodbye: queued frames are sent, for a bounded time
	Gone          // without connections; nothing is sent any more
)

// A Peer is the life of a connection to another rank. It decides when the driver reports the peer
// as lost: at most once, and never after Drop. The zero value is an open peer.
type Peer struct {
	state    State
	reported bool // the driver has reported the loss, or never will
	goodbye  bool // the peer has said goodbye
}

// State is the state of the peer.
func (p *Peer) State() State { return p.state }

// HeardGoodbye reports whether the peer has said goodbye.
func (p *Peer) HeardGoodbye() bool { return p.goodbye }

// Leave turns an open peer to Leaving, and reports whether it was open. The driver then says
// goodbye behind the queued frames, and calls Vanish after a bounded time.
func (p *Peer) Leave() bool {
	if p.state != Open {
		return false
	}
	p.state = Leaving
	return true
}

// Drop is Leave for a peer whose loss does not matter any more.
func (p *Peer) Drop() (leave bool) {
	p.reported = true
	return p.Leave()
}

// Goodbye takes the peer's goodbye. The driver reports it as fabric.ErrGoodbye, and leaves as well.
func (p *Peer) Goodbye() (report, leave bool) {
	p.goodbye = true
	return p.report(), p.Leave()
}

// Fail turns to Gone because the connection failed.
func (p *Peer) Fail() (report, vanish bool) {
	if p.state == Gone {
		return false, false
	}
	return p.report(), p.Vanish()
}

// Settle turns from Leaving to Gone if nothing is left to do (drained), or if neither side needs the
// rest: the peer has said goodbye, this rank has reported it, and nothing touches memory (idle).
func (p *Peer) Settle(drained, idle bool) (vanish bool) {
	return p.state == Leaving && (drained || p.goodbye && p.reported && idle) && p.Vanish()
}

// Vanish turns to Gone, and reports whether the driver has connections to close.
func (p *Peer) Vanish() bool {
	if p.state == Gone {
		return false
	}
	p.state = Gone
	return true
}

func (p *Peer) report() bool {
	first := !p.reported
	p.reported = true
	return first
}

// Links is a Peer with two connections. Each side sends on the connection that it dialled: out is
// this rank's, in is the peer's. Only a goodbye goes the other way, from a rank that never dialled.
type Links struct {
	peer   Peer
	dialed bool // this rank dials, or has dialled
	dead   bool // out failed, ended, or could not be made
	err    error
	in     bool
	said   bool // goodbye, on out
}

// Next is what a driver has to do, in this order.
type Next struct {
	Leave     bool  // call Vanish after a bounded time
	GoodbyeIn bool  // say goodbye on in, since there is no out
	Vanish    bool  // close both connections
	Grace     bool  // read on for a moment, and then Vanish: the peer may have sent a verdict
	Lost      error // report this, once nothing reads from the peer; nil: nothing to report
}

// State is the state of the peer.
func (l *Links) State() State { return l.peer.State() }

// CanSend reports whether frames to the peer may be queued.
func (l *Links) CanSend() bool { return l.peer.state == Open && !l.dead }

// Ended reports whether nothing queued can leave any more.
func (l *Links) Ended() bool { return l.peer.state == Gone || l.dead }

// Dial reports whether the driver has to dial now.
func (l *Links) Dial() bool {
	if l.dialed || l.peer.state != Open {
		return false
	}
	l.dialed = true
	return true
}

// Admission is the answer to a connection that the peer dialled.
type Admission uint8

// The answers to a connection.
const (
	Admitted  Admission = iota
	Duplicate           // the peer has a connection already
	Left                // this rank wants nothing more from the peer
)

// Admit takes a connection that the peer dialled.
func (l *Links) Admit() Admission {
	switch {
	case !l.CanSend():
		return Left
	case l.in:
		return Duplicate
	}
	l.in = true
	return Admitted
}

// SayGoodbye reports, once, that the driver has to say goodbye on out behind the queued frames.
func (l *Links) SayGoodbye() bool {
	if l.peer.state != Leaving || l.said {
		return false
	}
	l.said = true
	return true
}

// Drop ends the connections in order. The peer is never reported as lost.
func (l *Links) Drop() (n Next) {
	l.left(&n, l.peer.Drop())
	return n
}

// OutGoodbye says that the peer, which never dialled, said goodbye on out.
func (l *Links) OutGoodbye() (n Next) {
	l.peer.goodbye = true
	if l.peer.state == Open && !l.in {
		l.lose(&n, fabric.ErrGoodbye)
	}
	return n
}

// OutEnded says that out failed, ended, or could not be made.
func (l *Links) OutEnded(err error) (n Next) {
	if l.dead {
		return n
	}
	if l.peer.goodbye {
		err = fabric.ErrGoodbye
	}
	l.dead, l.err = true, err
	switch {
	case l.peer.state != Open:
		l.settle(&n)
	case l.in:
		n.Grace = true
	default:
		l.lose(&n, err)
	}
	return n
}

// InEnded says that nothing is read from in any more. After out has ended, the error of out is usually
// the cause; a violation by the peer is always the cause.
func (l *Links) InEnded(err error) (n Next) {
	l.in = false
	switch {
	case l.peer.goodbye:
		err = fabric.ErrGoodbye
	case l.dead && !errors.Is(err, fabric.ErrGoodbye) && !errors.Is(err, ErrMalformed):
		err = l.err
	}
	l.settle(&n)
	if !l.peer.reported {
		l.lose(&n, err)
	}
	return n
}

// Vanish gives up the peer: its time is over.
func (l *Links) Vanish() Next { return Next{Vanish: l.peer.Vanish()} }

// lose reports a loss. A peer that left in order still gets the queued frames.
func (l *Links) lose(n *Next, err error) {
	if l.peer.report() {
		n.Lost = err
	}
	if errors.Is(err, fabric.ErrGoodbye) {
		l.left(n, l.peer.Leave())
		return
	}
	n.Vanish = l.peer.Vanish() || n.Vanish
}

func (l *Links) left(n *Next, now bool) {
	if !now {
		return
	}
	n.Leave, n.GoodbyeIn = true, !l.dialed && l.in
	l.settle(n)
}

func (l *Links) settle(n *Next) {
	n.Vanish = l.peer.Settle(!l.in && (!l.dialed || l.dead), false) || n.Vanish
}
