package p2p

import (
	"fmt"

	"github.com/allcast/allcast/internal/protocol"
)

// maxPuts is how many sends are handed to the fabric at a time: enough to keep a
// link busy, few enough for other operations to get their turn.
const maxPuts = 8

// Config is what an Op needs to know.
type Config struct {
	Plan *Plan
	Comm uint32
	Seq  uint64
}

// An Op runs a Plan on one rank. A rank tells those it deals with that it is
// ready, and what it was called with; they send as soon as their plan allows. It
// is done when all has arrived and all has left, since nobody reads another's
// buffer, and all it deals with have greeted: data may overtake a greeting, and
// nobody is to end well with data of a rank that called something else.
type Op struct {
	life
	cfg  Config
	plan *Plan

	from    map[int32][]int32 // by peer: the receives from it, in order
	peers   []int32           // those we deal with,
	ready   map[int32]bool    // which of them have greeted, and may be sent to,
	unheard int               // and how many have not
	order   map[int32]uint32  // sends so far, by peer
	got     []bool            // by receive: it is in place
	held    map[int]uint32    // by receive: it is there, the so-manieth of its peer, but not its turn
	prefix  int               // the first so many receives are complete
	left    int               // receives to come
	next    int               // next send
	flying  int               // sends handed over and not done
	foreign uint64
}

// NewOp returns an Op that waits for EvStart.
func NewOp(cfg Config) *Op {
	o := &Op{
		cfg: cfg, plan: cfg.Plan, from: map[int32][]int32{}, ready: map[int32]bool{}, order: map[int32]uint32{},
		got: make([]bool, len(cfg.Plan.Recvs)), held: map[int]uint32{}, left: len(cfg.Plan.Recvs),
	}
	for i, r := range cfg.Plan.Recvs {
		o.from[r.From] = append(o.from[r.From], int32(i))
		o.meet(r.From)
	}
	for _, s := range cfg.Plan.Sends {
		o.meet(s.To)
	}
	o.unheard = len(o.peers)
	return o
}

// meet notes a peer. Those we receive from come first: they wait for our word.
func (o *Op) meet(peer int32) {
	if _, met := o.ready[peer]; !met {
		o.ready[peer] = false
		o.peers = append(o.peers, peer)
	}
}

// Step tells the Op what happened and appends what to do to out.
func (o *Op) Step(now protocol.Time, ev protocol.Event, out []protocol.Action) []protocol.Action {
	if o.mismatched(&ev, o.plan.Digest) {
		return append(out, protocol.Action{Kind: protocol.ActMismatch, To: ev.From, Msg: *ev.Msg})
	}
	if o.phase >= protocol.Closed {
		return out
	}
	switch ev.Kind {
	case protocol.EvStart:
		o.begin(now)
		out = o.greet(out)
	case protocol.EvMsg:
		if ev.Msg.Kind != protocol.MsgReady {
			return out
		}
		if heard, peer := o.ready[int32(ev.From)]; peer && !heard {
			o.ready[int32(ev.From)] = true
			o.unheard--
		}
	case protocol.EvSent:
		o.flying -= int(ev.N)
	}
	return o.settle(now, o.pump(out))
}

// greet tells those we receive from that they may send, and those we send to
// what we were called with: two ranks that both think they are the root would
// otherwise never hear of each other.
func (o *Op) greet(out []protocol.Action) []protocol.Action {
	for _, p := range o.peers {
		out = append(out, protocol.Action{Kind: protocol.ActSend, To: int(p), Msg: o.msg()})
	}
	return out
}

func (o *Op) msg() protocol.Msg {
	return protocol.Msg{
		Kind: protocol.MsgReady, Comm: o.cfg.Comm, Seq: o.cfg.Seq, Digest: o.plan.Digest,
		Call: protocol.CallInfo{Kind: o.plan.Kind, Root: uint32(o.plan.Root), Bytes: uint64(o.plan.Bytes)},
	}
}

// Expect says where the nth piece from a peer belongs, if it is length bytes long:
// with Hold, not before ActApply names it.
func (o *Op) Expect(from int, nth uint32, length int64) (Recv, bool) {
	_, r, ok := o.expect(from, nth, length)
	return r, ok
}

func (o *Op) expect(from int, nth uint32, length int64) (i int, r Recv, ok bool) {
	var recvs []int32
	if from >= 0 && from < o.plan.Size {
		recvs = o.from[int32(from)]
	}
	if o.phase != protocol.Transfer || int(nth) >= len(recvs) {
		return 0, Recv{}, false
	}
	i = int(recvs[nth])
	r = o.plan.Recvs[i]
	if _, held := o.held[i]; held || o.got[i] || r.Len != length {
		return 0, Recv{}, false
	}
	r.Hold = r.Reduce && i > o.prefix
	return i, r, true
}

// Data takes the nth piece that a peer sent us, of length bytes. If ok, it belongs
// where the Recv says, before anything else happens; or, if Recv.Hold is set, when
// ActApply names it.
func (o *Op) Data(now protocol.Time, from int, nth uint32, length int64, out []protocol.Action) (Recv, bool, []protocol.Action) {
	i, r, ok := o.expect(from, nth, length)
	if !ok {
		o.foreign++
		return Recv{}, false, out
	}
	if r.Hold {
		o.held[i] = nth
		return r, true, out
	}
	o.got[i] = true
	o.left--
	return r, true, o.settle(now, o.pump(o.apply(out)))
}

// apply moves past what is in place, and lets in what was held for its turn.
func (o *Op) apply(out []protocol.Action) []protocol.Action {
	for ; o.prefix < len(o.got); o.prefix++ {
		if o.got[o.prefix] {
			continue
		}
		nth, held := o.held[o.prefix]
		if !held {
			break
		}
		delete(o.held, o.prefix)
		o.got[o.prefix] = true
		o.left--
		r := o.plan.Recvs[o.prefix]
		out = append(out, protocol.Action{Kind: protocol.ActApply, To: int(r.From), PSN: nth, Off: r.Off, Len: r.Len})
	}
	return out
}

// pump hands over the sends whose time has come, in order.
func (o *Op) pump(out []protocol.Action) []protocol.Action {
	for o.phase == protocol.Transfer && o.next < len(o.plan.Sends) && o.flying < maxPuts {
		s := &o.plan.Sends[o.next]
		if int(s.After) > o.prefix || !o.ready[s.To] {
			break
		}
		out = append(out, protocol.Action{
			Kind: protocol.ActPut, To: int(s.To), PSN: o.order[s.To], Off: s.Off, Len: s.Len,
		})
		o.order[s.To]++
		o.next++
		o.flying++
	}
	return out
}

func (o *Op) settle(now protocol.Time, out []protocol.Action) []protocol.Action {
	if o.phase != protocol.Transfer || o.left > 0 || o.next < len(o.plan.Sends) || o.flying > 0 || o.unheard > 0 {
		return out
	}
	return o.end(now, out)
}

// Stats returns the Op's counters.
func (o *Op) Stats() protocol.Stats { return protocol.Stats{Foreign: o.foreign} }

// WaitingOn names the rank that has to act next for this Op to go on.
func (o *Op) WaitingOn() int {
	if o.prefix < len(o.got) && (o.next == len(o.plan.Sends) || int(o.plan.Sends[o.next].After) > o.prefix) {
		return int(o.plan.Recvs[o.prefix].From)
	}
	if o.next < len(o.plan.Sends) && !o.ready[o.plan.Sends[o.next].To] {
		return int(o.plan.Sends[o.next].To)
	}
	if o.left == 0 && o.next == len(o.plan.Sends) {
		for _, p := range o.peers {
			if !o.ready[p] {
				return int(p)
			}
		}
	}
	return o.plan.Rank
}

// Missing describes what has not arrived, for people.
func (o *Op) Missing() string {
	if o.left == 0 {
		return "nothing"
	}
	r := o.plan.Recvs[o.prefix]
	if r.Len == 0 {
		return fmt.Sprintf("%d of %d pieces, first an empty one from rank %d", o.left, len(o.got), r.From)
	}
	return fmt.Sprintf("%d of %d pieces, first bytes %d-%d from rank %d", o.left, len(o.got), r.Off, r.Off+r.Len-1, r.From)
}
