package p2p

import (
	"fmt"
	"slices"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// maxPuts limits the sends handed to the fabric at a time. It is large enough to keep a link busy, and
// small enough for other operations to get their turn.
const maxPuts = 8

// Config holds the parameters of an Executor.
type Config struct {
	Plan *Plan
	Comm uint32
	Seq  uint64

	// Ahead, if set, makes the Executor eager, on all ranks or on none. It reports whether this rank
	// may send to a peer that has not greeted. The peer keeps data that arrives before its call.
	Ahead func(seq uint64, peer int) bool
	// Owes reports whether this rank must greet a peer that sends to it, so that the peer learns how
	// far it is ahead.
	Owes func(seq uint64, peer int) bool
}

// eagerPatience is the time after which an eager Executor greets the remaining peers. Without it, two
// ranks that both expect to receive would never learn of each other.
const eagerPatience = 20 * step.Millisecond

// An Executor runs a Plan on one rank. A rank greets its peers: it is ready, and this is its call.
// Peers send as soon as their plan allows. No rank reads the buffer of another. The Executor is
// therefore done when all pieces have arrived, all sends have left, and all peers have greeted. Data
// may overtake a greeting, and no rank may succeed with data of a rank that made a different call.
//
// An eager Executor sends without waiting for greetings, and needs no greeting from ranks that it
// only sends to. This saves one message in each direction, and the wait for it. It sends its own
// greeting right before its data.
type Executor struct {
	lifecycle
	cfg  Config
	plan *Plan

	peers     []peer    // by contact of the plan
	ungreeted int       // required greetings that have not arrived
	timer     step.Time // eager: time to greet the remaining peers
	prefix    int       // number of leading receives that are complete
	left      int       // number of incomplete receives
	pending   int64     // bytes of all receives but the first prefix
	next      int       // index of the next send
	inFlight  int       // sends handed over but not done

	somePeers [6]peer // backing array for small plans, which are the common case
}

// peer is the state of an Executor with respect to one peer.
type peer struct {
	ready   bool   // whether the peer has greeted and may be sent to
	greeted bool   // eager: whether this rank has greeted the peer
	sends   uint32 // number of sends to the peer so far
}

// NewExecutor returns an Executor that waits for EvStart.
func NewExecutor(cfg Config) *Executor {
	o := &Executor{cfg: cfg, plan: cfg.Plan, left: len(cfg.Plan.Recvs), timer: step.Never}
	for i := range o.plan.Recvs {
		o.pending += o.plan.Recvs[i].Len
	}
	o.peers = o.somePeers[:]
	if n := len(o.plan.peers); n > len(o.peers) {
		o.peers = make([]peer, n)
	}
	o.peers = o.peers[:len(o.plan.peers)]
	o.ungreeted = len(o.peers)
	if o.eager() {
		o.ungreeted = o.plan.senders
	}
	return o
}

func (o *Executor) eager() bool { return o.cfg.Ahead != nil }

// Step handles an event and appends the resulting actions to out.
func (o *Executor) Step(now step.Time, ev step.Event, out []step.Action) []step.Action {
	if ev.Kind == step.EvMsg && o.mismatched(&ev, o.plan.DigestWith(ev.From)) {
		return append(out, step.Action{Kind: step.ActMismatch, To: ev.From, Msg: *ev.Msg})
	}
	if o.phase >= step.Closed {
		return out
	}
	switch ev.Kind {
	case step.EvStart:
		o.start(now)
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
				o.ungreeted--
			}
		}
	case step.EvSent:
		o.inFlight -= int(ev.N)
	}
	return o.settle(now, o.pump(out))
}

// greet tells the ranks that send to this one that they may send, and tells receivers which call this
// rank made. Without the latter, two ranks that both act as the root would never learn of each other.
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
	to := int(o.plan.peers[i].rank)
	return append(out, step.Action{Kind: step.ActSend, To: to, Msg: o.msg(to)})
}

// Timer returns the time at which an eager Executor greets the remaining peers.
func (o *Executor) Timer() step.Time {
	if o.phase != step.Transfer {
		return step.Never
	}
	return o.timer
}

// mayPut reports whether this rank may send to a peer.
func (o *Executor) mayPut(i int) bool {
	return o.peers[i].ready || o.eager() && o.cfg.Ahead(o.cfg.Seq, int(o.plan.peers[i].rank))
}

func (o *Executor) msg(to int) wire.Msg {
	return wire.Msg{
		Kind: wire.MsgReady, Comm: o.cfg.Comm, Seq: o.cfg.Seq, Digest: o.plan.DigestWith(to),
		Call: o.plan.CallWith(to),
	}
}

// Received reports the state of the Inbox: the first prefix receives are complete, and left are not.
// Reports may overtake each other.
func (o *Executor) Received(now step.Time, prefix, left int, out []step.Action) []step.Action {
	if o.phase != step.Transfer {
		return out
	}
	for ; o.prefix < min(prefix, len(o.plan.Recvs)); o.prefix++ {
		o.pending -= o.plan.Recvs[o.prefix].Len
	}
	o.left = min(o.left, left)
	return o.settle(now, o.pump(out))
}

// Pending returns how many bytes this rank waits for, and how many of them are the next piece. Pieces
// count in order.
func (o *Executor) Pending() (bytes, next int64) {
	if o.prefix < len(o.plan.Recvs) {
		next = o.plan.Recvs[o.prefix].Len
	}
	return o.pending, next
}

// pump hands over the sends whose conditions hold, in order.
func (o *Executor) pump(out []step.Action) []step.Action {
	for o.phase == step.Transfer && o.next < len(o.plan.Sends) && o.inFlight < maxPuts {
		s := &o.plan.Sends[o.next]
		if int(s.After) > o.prefix {
			break
		}
		to := o.plan.contact(int(s.To))
		if !o.mayPut(to) {
			break
		}
		if o.eager() {
			out = o.greetOne(to, out)
		}
		out = append(out, step.Action{
			Kind: step.ActPut, To: int(s.To), PSN: o.peers[to].sends, Off: s.Off, Len: s.Len, Input: s.Input, Parts: s.Parts,
		})
		o.peers[to].sends++
		o.next++
		o.inFlight++
	}
	return out
}

func (o *Executor) settle(now step.Time, out []step.Action) []step.Action {
	if o.phase != step.Transfer || o.left > 0 || o.next < len(o.plan.Sends) || o.inFlight > 0 || o.ungreeted > 0 {
		return out
	}
	return o.complete(now, out)
}

// Awaits reports whether the Executor cannot end without a greeting that a rank has not sent. An eager Executor needs
// one of a rank that it only sends to if it is too far ahead of that rank.
func (o *Executor) Awaits(rank int) bool {
	i := o.plan.contact(rank)
	if o.phase != step.Transfer || i < 0 || o.peers[i].ready {
		return false
	}
	toRank := func(s Send) bool { return int(s.To) == rank }
	return i < o.plan.senders || !o.mayPut(i) && slices.ContainsFunc(o.plan.Sends[o.next:], toRank) || !o.eager()
}

// WaitingOn returns the rank that must act next.
func (o *Executor) WaitingOn() int {
	if o.prefix < len(o.plan.Recvs) && (o.next == len(o.plan.Sends) || int(o.plan.Sends[o.next].After) > o.prefix) {
		return int(o.plan.Recvs[o.prefix].From)
	}
	if o.next < len(o.plan.Sends) {
		if to := int(o.plan.Sends[o.next].To); !o.mayPut(o.plan.contact(to)) {
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

// Missing describes the missing pieces for error messages.
func (o *Executor) Missing(name step.Namer) string {
	if o.left == 0 {
		return "nothing"
	}
	r := o.plan.Recvs[o.prefix]
	if r.Len == 0 {
		return fmt.Sprintf("%d of %d pieces, first an empty one from %s",
			o.left, len(o.plan.Recvs), name.Name(int(r.From)))
	}
	return fmt.Sprintf("%d of %d pieces, first bytes %d-%d from %s",
		o.left, len(o.plan.Recvs), r.Off, r.Off+r.Len-1, name.Name(int(r.From)))
}
