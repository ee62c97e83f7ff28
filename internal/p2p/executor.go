package p2p

import (
	"fmt"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// maxPuts is how many sends are handed to the fabric at a time: enough to keep a
// link busy, few enough for other operations to get their turn.
const maxPuts = 8

// Config is what an Executor needs to know.
type Config struct {
	Plan *Plan
	Comm uint32
	Seq  uint64

	// Ahead, if set, makes the Executor eager, on all ranks or on none. It says whether a
	// peer may be sent to that has not greeted: it keeps what comes before its call.
	Ahead func(seq uint64, peer int) bool
	// Owes says whether a peer that sends to us is to be greeted, so that it knows how
	// far it is ahead.
	Owes func(seq uint64, peer int) bool
}

// eagerPatience is how long an eager Executor waits before it greets those it has not greeted:
// two ranks that both think they receive would otherwise never hear of each other.
const eagerPatience = 20 * step.Millisecond

// An Executor runs a Plan on one rank. A rank tells those it deals with that it is
// ready, and what it was called with; they send as soon as their plan allows. It
// is done when all has arrived and all has left, since nobody reads another's
// buffer, and all it deals with have greeted: data may overtake a greeting, and
// nobody is to end well with data of a rank that called something else.
//
// An eager one waits for no greeting before it sends, and does not need that of a rank
// that it only sends to: a message each way is saved, and the wait for it. Its
// greeting goes right before its data.
type Executor struct {
	life
	cfg  Config
	plan *Plan

	peers   []peer    // as in the plan
	unheard int       // peers that have not greeted, of those that must
	timer   step.Time // eager: when we greet the others
	prefix  int       // the first so many receives are complete
	left    int       // receives to come
	next    int       // next send
	flying  int       // sends handed over and not done

	somePeers [6]peer // most plans are small
}

// peer is how far an Executor is with one it deals with.
type peer struct {
	ready   bool   // it has greeted, and may be sent to
	greeted bool   // eager: we have greeted it
	sends   uint32 // to it so far
}

// NewExecutor returns an Executor that waits for EvStart.
func NewExecutor(cfg Config) *Executor {
	o := &Executor{cfg: cfg, plan: cfg.Plan, left: len(cfg.Plan.Recvs), timer: step.Never}
	o.peers = o.somePeers[:]
	if n := len(o.plan.peers); n > len(o.peers) {
		o.peers = make([]peer, n)
	}
	o.peers = o.peers[:len(o.plan.peers)]
	o.unheard = len(o.peers)
	if o.eager() {
		o.unheard = o.plan.senders
	}
	return o
}

func (o *Executor) eager() bool { return o.cfg.Ahead != nil }

// Step tells the Executor what happened and appends what to do to out.
func (o *Executor) Step(now step.Time, ev step.Event, out []step.Action) []step.Action {
	if o.mismatched(&ev, o.plan.Digest) {
		return append(out, step.Action{Kind: step.ActMismatch, To: ev.From, Msg: *ev.Msg})
	}
	if o.phase >= step.Closed {
		return out
	}
	switch ev.Kind {
	case step.EvStart:
		o.begin(now)
		out = o.greet(now, out)
	case step.EvTimer:
		if o.timer <= now {
			out = o.greetAll(out)
		}
	case step.EvMsg:
		if ev.Msg.Kind != wire.MsgReady {
			return out
		}
		if i := o.plan.contact(ev.From); i >= 0 && !o.peers[i].ready {
			o.peers[i].ready = true
			if i < o.plan.senders || !o.eager() {
				o.unheard--
			}
		}
	case step.EvSent:
		o.flying -= int(ev.N)
	}
	return o.settle(now, o.pump(out))
}

// greet tells those we receive from that they may send, and those we send to
// what we were called with: two ranks that both think they are the root would
// otherwise never hear of each other.
func (o *Executor) greet(now step.Time, out []step.Action) []step.Action {
	if !o.eager() {
		return o.greetAll(out)
	}
	for i := range o.plan.senders {
		if o.cfg.Owes(o.cfg.Seq, int(o.plan.peers[i].rank)) {
			out = o.greetOne(i, out)
		}
	}
	o.timer = now + eagerPatience
	return out
}

func (o *Executor) greetAll(out []step.Action) []step.Action {
	o.timer = step.Never
	for i := range o.peers {
		out = o.greetOne(i, out)
	}
	return out
}

func (o *Executor) greetOne(i int, out []step.Action) []step.Action {
	if o.eager() {
		if o.peers[i].greeted {
			return out
		}
		o.peers[i].greeted = true
	}
	return append(out, step.Action{Kind: step.ActSend, To: int(o.plan.peers[i].rank), Msg: o.msg()})
}

// Timer is when an eager Executor loses patience.
func (o *Executor) Timer() step.Time {
	if o.phase != step.Transfer {
		return step.Never
	}
	return o.timer
}

// may reports whether a peer may be sent to.
func (o *Executor) may(i int) bool {
	return o.peers[i].ready || o.eager() && o.cfg.Ahead(o.cfg.Seq, int(o.plan.peers[i].rank))
}

func (o *Executor) msg() wire.Msg {
	return wire.Msg{
		Kind: wire.MsgReady, Comm: o.cfg.Comm, Seq: o.cfg.Seq, Digest: o.plan.Digest,
		Call: o.plan.Call(),
	}
}

// Received learns how far the Inbox is: the first prefix receives are complete, and left are not.
// Reports may overtake each other.
func (o *Executor) Received(now step.Time, prefix, left int, out []step.Action) []step.Action {
	if o.phase != step.Transfer {
		return out
	}
	o.prefix, o.left = max(o.prefix, prefix), min(o.left, left)
	return o.settle(now, o.pump(out))
}

// pump hands over the sends whose time has come, in order.
func (o *Executor) pump(out []step.Action) []step.Action {
	for o.phase == step.Transfer && o.next < len(o.plan.Sends) && o.flying < maxPuts {
		s := &o.plan.Sends[o.next]
		if int(s.After) > o.prefix {
			break
		}
		to := o.plan.contact(int(s.To))
		if !o.may(to) {
			break
		}
		if o.eager() {
			out = o.greetOne(to, out)
		}
		out = append(out, step.Action{
			Kind: step.ActPut, To: int(s.To), PSN: o.peers[to].sends, Off: s.Off, Len: s.Len, Input: s.Input,
		})
		o.peers[to].sends++
		o.next++
		o.flying++
	}
	return out
}

func (o *Executor) settle(now step.Time, out []step.Action) []step.Action {
	if o.phase != step.Transfer || o.left > 0 || o.next < len(o.plan.Sends) || o.flying > 0 || o.unheard > 0 {
		return out
	}
	return o.end(now, out)
}

// Stats returns the Executor's counters.
func (o *Executor) Stats() step.Stats { return step.Stats{} }

// WaitingOn names the rank that has to act next for this Executor to go on.
func (o *Executor) WaitingOn() int {
	if o.prefix < len(o.plan.Recvs) && (o.next == len(o.plan.Sends) || int(o.plan.Sends[o.next].After) > o.prefix) {
		return int(o.plan.Recvs[o.prefix].From)
	}
	if o.next < len(o.plan.Sends) {
		if to := int(o.plan.Sends[o.next].To); !o.may(o.plan.contact(to)) {
			return to
		}
	}
	if o.left == 0 && o.next == len(o.plan.Sends) {
		for i := range o.peers {
			if !o.peers[i].ready && (i < o.plan.senders || !o.eager()) {
				return int(o.plan.peers[i].rank)
			}
		}
	}
	return o.plan.Rank
}

// Missing describes what has not arrived, for people.
func (o *Executor) Missing(name step.Namer) string {
	if o.left == 0 {
		return "nothing"
	}
	r := o.plan.Recvs[o.prefix]
	if r.Len == 0 {
		return fmt.Sprintf("%d of %d pieces, first an empty one from %s", o.left, len(o.plan.Recvs), name.Name(int(r.From)))
	}
	return fmt.Sprintf("%d of %d pieces, first bytes %d-%d from %s", o.left, len(o.plan.Recvs), r.Off, r.Off+r.Len-1, name.Name(int(r.From)))
}
