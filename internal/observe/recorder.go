package observe

import (
	"cmp"

	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Kind is the kind of an event.
type Kind uint8

// Kinds, and the meaning of an Event's fields. Every event has At; Comm and Seq identify the
// operation, if there is one.
const (
	CallBegun  Kind = 1 + iota // What: wire.CallKind; N: bytes; Text: algorithm
	CallEnded                  // What: wire.CallKind; N: nanoseconds it took; Text: algorithm
	CallFailed                 // What: node.Reason, 0 if none; Peer: the culprit; Text: algorithm
	Phase                      // What: the step.Phase that begins
	Sent                       // What: wire.MsgKind; Peer: to whom
	Received                   // What: wire.MsgKind; Peer: from whom
	Repair                     // Peer was asked for N chunks
	Repaired                   // Peer sent N bytes of repairs
	PeerLost                   // Peer; Text: the reason
	PeerLeft                   // Peer
	Dropped                    // Peer: a lost rank whose connection was closed
)

var kindNames = map[Kind]string{
	CallBegun: "begun", CallEnded: "ended", CallFailed: "failed", Phase: "phase", Sent: "sent", Received: "received",
	Repair: "repair", Repaired: "repaired", PeerLost: "peer-lost", PeerLeft: "peer-left", Dropped: "dropped",
}

func (k Kind) String() string { return cmp.Or(kindNames[k], "unknown") }

// An Event is one event or a run of equal ones: Times is their number, At the time of the last.
type Event struct {
	At    int64 // nanoseconds on the process's clock
	Seq   uint64
	N     int64
	Text  string
	Comm  uint32
	Peer  int32 // world rank or NoPeer
	Times uint32
	Kind  Kind
	What  uint8
}

// NoPeer is the Peer of events that have none.
const NoPeer = -1

// Size is the number of events that a Recorder keeps.
const Size = 1024

// A Recorder keeps the last events. Only the goroutine that runs the node may use it, so it needs
// no lock. It does not allocate.
type Recorder struct {
	ring [Size]Event
	n    uint64 // events so far
}

// Add records an event, which may be a repetition of the last one.
func (r *Recorder) Add(e *Event) {
	if e.Kind == Sent || e.Kind == Received {
		// In an empty ring this is the zero Event, which equals no other.
		if last := &r.ring[(r.n-1)%Size]; last.same(e) {
			last.Times++
			last.At = e.At
			return
		}
	}
	at := &r.ring[r.n%Size]
	*at = *e
	at.Times = 1
	r.n++
}

// same reports whether two messages differ only in time. A stream of grants must not push out
// older events.
func (e *Event) same(o *Event) bool {
	return e.Kind == o.Kind && e.What == o.What && e.Peer == o.Peer && e.Comm == o.Comm && e.Seq == o.Seq
}

// Events returns the last events, oldest first: at most limit of them, or all if limit is not
// positive.
func (r *Recorder) Events(limit int) []Event {
	n := min(r.n, Size)
	if limit > 0 {
		n = min(n, uint64(limit))
	}
	out := make([]Event, 0, n)
	for i := r.n - n; i < r.n; i++ {
		out = append(out, r.ring[i%Size])
	}
	return out
}

// Total is the number of events so far.
func (r *Recorder) Total() uint64 { return r.n }

// Detail describes What in words.
func (e *Event) Detail() string {
	switch e.Kind {
	case CallBegun, CallEnded:
		return wire.CallKind(e.What).String()
	case CallFailed:
		if e.What == 0 {
			return "error"
		}
		return node.Reason(e.What).String()
	case Phase:
		return step.Phase(e.What).String()
	case Sent, Received:
		return cmp.Or(messageNames[wire.MsgKind(e.What)], "message")
	}
	return ""
}

var messageNames = map[wire.MsgKind]string{
	wire.MsgBarrier: "barrier", wire.MsgActivate: "activate", wire.MsgChainSent: "chain-sent", wire.MsgSentUp: "sent-up",
	wire.MsgAllSent: "all-sent", wire.MsgFetch: "fetch", wire.MsgAvail: "avail", wire.MsgFinal: "final",
	wire.MsgFinalSum: "final-sum", wire.MsgGrantUp: "grant-up", wire.MsgGrant: "grant", wire.MsgMark: "mark",
	wire.MsgReady: "ready", wire.MsgHeartbeat: "heartbeat", wire.MsgDead: "dead", wire.MsgAbort: "abort",
	wire.MsgProbeWait: "why", wire.MsgWaitState: "because", wire.MsgAgree: "agree",
	wire.MsgOffer: "offer", wire.MsgAccept: "accept", wire.MsgDiscard: "discard",
	wire.MsgEagerFetch: "eager-fetch", wire.MsgEagerSent: "eager-sent", wire.MsgFinishedUp: "finished-up",
	wire.MsgFinished: "finished", wire.MsgFinishedAsk: "finished-ask",
	wire.MsgWithdraw: "withdraw", wire.MsgWithdrawn: "withdrawn", wire.MsgCredit: "credit",
	wire.MsgIncGo: "inc-go", wire.MsgIncAsk: "inc-ask", wire.MsgIncDown: "inc-down",
}
