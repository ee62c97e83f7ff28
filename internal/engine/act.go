package engine

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// operation is one round of a call that is open.
type operation struct {
	key       fabric.OpKey
	token     uint64
	call      *call
	geo       *mcast.Geometry // nil: point to point
	seal      *sealing        // nil: its datagrams are not sealed
	landings  []*landing      // by subgroup, nil where there is nothing to receive; nil: it does not multicast
	pieces    *pieces         // nil: it multicasts
	mem       atomic.Pointer[[]byte]
	cancelled atomic.Bool
	pins      pins // those who read its data from connections

	// Of who runs the node.
	offloaded   bool // the kernel receives for all its subgroups
	registering bool // its buffer is being registered: it is not open before
	joining     bool // its communicator's groups are being joined: likewise
	puts        int  // handed to the fabric and not done
	placing     int  // reads straight into place that have not ended
	waiting     int  // answers that a failing operation waits for
	gone        bool // the node no longer knows it
	summing     bool // somebody sums up what it received
}

// begin hands a call to the node.
func (e *Engine) begin(now step.Time, k *call) {
	e.reqs++
	req := e.reqs
	e.calls[req] = k
	k.id = req
	e.begun(now, k)
	var err error
	switch {
	case e.closing.Load():
		err = ErrClosed
	case k.plan != nil:
		err = e.node.Start(now, k.comm, req, k.plan)
	default:
		err = e.node.StartPlan(now, k.comm, req, k.p2p)
	}
	if err != nil {
		e.end(req, err)
	}
}

// finishAtOnce is how large a result may be that is finished where the node is run.
const finishAtOnce = 64 << 10

// complete ends a call that went well, once its result is what the caller wants.
func (e *Engine) complete(req uint64) {
	k := e.calls[req]
	k.whole = true
	switch {
	case !k.finishes():
		e.end(req, nil)
	case len(k.Recv) <= finishAtOnce:
		e.end(req, k.finish())
	default:
		go func() {
			t := newTask(taskFinished)
			t.id, t.err = req, k.finish()
			e.push(t)
		}()
	}
}

// end reports a call.
func (e *Engine) end(req uint64, err error) {
	k := e.calls[req]
	delete(e.calls, req)
	k.req.err = err
	wait := e.ended(k, err)
	if k.area != nil {
		k.area.leave()
		e.bulk.Store(false) // what was fetched was never placed; other calls' look says if there is more
	}
	k.mem, k.Send, k.Recv = nil, nil, nil
	if err != nil && !e.closing.Load() {
		// The caller may end because of it. Who only sees that would take us for the
		// cause: the verdict leaves first.
		go func() {
			e.rel.Flush(lastWords)
			wait()
			e.report(k)
		}()
	} else {
		e.report(k)
	}
	e.checkIdle()
}

// report ends a request, and the sleep of who waits for it. Its memory may be freed from now on.
func (e *Engine) report(k *call) {
	e.blocks.unuse(k.uses)
	k.req.end()
	if e.asleep.Load() {
		e.poller.Kick()
	}
}

// lastWords is how long a failure is kept back so that others hear of it.
const lastWords = 500 * time.Millisecond

func (e *Engine) checkIdle() {
	if e.whenIdle != nil && len(e.calls) == 0 {
		e.whenIdle()
		e.whenIdle = nil
	}
}

// act carries out what the node wants.
func (e *Engine) act() {
	for {
		acts := e.node.Actions()
		if len(acts) == 0 {
			return
		}
		for i := range acts {
			next := &noAction
			if i+1 < len(acts) {
				next = &acts[i+1]
			}
			e.carryOut(&acts[i], next)
		}
	}
}

var noAction node.Action

// follows reports whether b goes to the same peer as a, so that a may wait for it.
func follows(a, b *node.Action) bool {
	return a.To == b.To && (b.Kind == node.Put || b.Kind == node.Send && b.Msg.Kind != 0)
}

func (e *Engine) carryOut(a, next *node.Action) {
	key := fabric.OpKey{Comm: a.Comm, Seq: a.Seq}
	e.acts(a)
	switch a.Kind {
	case node.Send:
		e.msg = wire.AppendMsg(e.msg[:0], &a.Msg)
		if follows(a, next) {
			e.rel.SendMore(a.To, e.msg)
		} else {
			e.rel.Send(a.To, e.msg)
		}
	case node.Open:
		if a.Geometry != nil {
			e.openMulticast(key, e.calls[a.Req], a)
		} else {
			e.openPieces(key, e.calls[a.Req], a.Inbox)
		}
	case node.Multicast:
		t := newTask(cmdMulticast)
		t.op, t.sub, t.psn, t.n, t.id = e.ops[key], a.Sub, a.PSN, a.N, uint64(a.N)
		e.send.command(t)
	case node.Read:
		e.read(e.ops[key], a)
	case node.Put:
		op := e.ops[key]
		op.puts++
		e.rel.Put(a.To, fabric.Piece{Op: key, Nth: a.PSN, Len: a.Len}, op.pieces.source(a.To, a.PSN, a.Off, a.Len, a.Input))
	case node.Release:
		e.release(e.ops[key])
	case node.Quiesce:
		e.quiesce(e.ops[key])
	case node.Done:
		if a.Err != nil {
			e.forgetEarly(a.Comm)
		}
		switch {
		case a.Err == nil:
			e.complete(a.Req)
		case e.closing.Load() && a.Err.Reason == node.Aborted && a.Err.Culprit == e.cfg.Rank:
			e.end(a.Req, ErrClosed) // that is how Close ends calls
		default:
			e.end(a.Req, a.Err)
		}
	case node.Closed:
		// Datagrams of the operation may still come, but their token is of no use any
		// more: whoever uses the slot next has another.
		e.node.Drained(e.now(), a.Comm, a.Seq)
	case node.Drop:
		e.rel.Drop(a.To)
	case node.Settled:
		e.agreed(a)
	case node.Removed:
		e.removed(a.Comm)
	case node.Digest:
		e.digest(e.ops[key])
	case node.Reduce:
		panic("engine: in-network reduction on a fabric that has none")
	default:
		panic(fmt.Sprintf("engine: unknown action %d", a.Kind))
	}
}

// openPieces lets an operation's pieces come and go.
func (e *Engine) openPieces(key fabric.OpKey, k *call, inbox *p2p.Inbox) {
	op := &operation{key: key, call: k, pieces: newPieces(k, inbox, &e.scratch)}
	e.ops[key] = op
	e.transfers.add(op)
	e.node.Opened(e.now(), key.Comm, key.Seq, false)
	e.recall(op)
}

// openMulticast lets an operation's buffers be written and read.
func (e *Engine) openMulticast(key fabric.OpKey, k *call, a *node.Action) {
	op := &operation{key: key, call: k, geo: a.Geometry}
	op.mem.Store(k.mem)
	e.ops[key] = op
	if k.size == 1 {
		e.opened(op)
		return
	}
	op.token = e.tokens.of(e.names[key.Comm], key.Seq)
	op.seal = e.sealing(key, k)
	op.landings = make([]*landing, len(a.Placements))
	op.offloaded = e.caps.Placer != nil
	for sub, p := range a.Placements {
		// A worker that receives nothing for it, as a root's, must not be told of it: no datagram
		// would ever make the worker look at what it was told.
		if !p.Receives() {
			continue
		}
		l := &landing{op: op, place: p, mem: &op.mem, left: p.Len() - p.Own().N}
		p.Data = l
		op.offloaded = e.offload(l) && op.offloaded
		op.landings[sub] = l
		t := newTask(cmdOpen)
		t.landing = l
		e.recvs[sub].command(t, false)
	}
	op.registering = !e.rel.Register(key, *k.mem)
	op.joining = e.joining[key.Comm] != nil
	e.opened(op)
}

// opened tells the node that an operation is open, once it is.
func (e *Engine) opened(op *operation) {
	if !op.registering && !op.joining {
		e.node.Opened(e.now(), op.key.Comm, op.key.Seq, op.offloaded)
	}
}

// registered takes the end of a registration. An operation whose buffer the network cannot use is
// given up: the others would wait for it.
func (e *Engine) registered(key fabric.OpKey, err error) {
	if op := e.failing[key]; op != nil {
		e.quiet(op)
		return
	}
	op := e.ops[key]
	if op == nil {
		return
	}
	op.registering = false
	if err != nil {
		e.log.Error("a buffer cannot be used by the network: the communicator is aborted", "comm", key.Comm, "err", err)
		_ = e.node.Abort(key.Comm) // it exists
		return
	}
	e.opened(op)
}

// release gives an operation's buffers back: all of it is complete.
func (e *Engine) release(op *operation) {
	e.forget(op)
	for _, l := range op.landings {
		if l != nil {
			e.recvs[l.place.Sub].command(closing(cmdClose, l), false)
		}
	}
	if op.pieces != nil {
		e.node.Foreign(op.pieces.release())
	}
}

// forget takes an operation's buffers away from the reliable side; the workers
// have their own ways.
func (e *Engine) forget(op *operation) {
	op.gone = true
	op.mem.Store(nil)
	delete(e.ops, op.key)
	if op.landings != nil {
		e.rel.Unregister(op.key)
		e.reads.forget(op)
	}
	if op.pieces != nil {
		e.transfers.remove(op)
	}
}

// quiesce sees that nothing touches a failed operation's buffers any more.
func (e *Engine) quiesce(op *operation) {
	op.cancelled.Store(true)
	e.forget(op)
	e.failing[op.key] = op
	op.waiting = op.puts + op.placing
	for _, busy := range []bool{op.registering, op.summing, op.pins.close()} {
		if busy {
			op.waiting++
		}
	}
	if op.landings != nil {
		op.waiting++
		t := newTask(cmdQuiet)
		t.op = op
		e.send.command(t)
		for _, l := range op.landings {
			if l != nil {
				op.waiting++
				e.recvs[l.place.Sub].command(closing(cmdQuiet, l), true)
			}
		}
	}
	if op.puts+op.placing > 0 {
		e.rel.Cancel(op.key)
	}
	e.settled(op)
}

// quiet takes an answer.
func (e *Engine) quiet(op *operation) {
	op.waiting--
	e.settled(op)
}

func (e *Engine) settled(op *operation) {
	if e.failing[op.key] == op && op.waiting == 0 {
		delete(e.failing, op.key)
		if op.pieces != nil {
			e.node.Foreign(op.pieces.release())
		}
		e.node.Quiesced(op.key.Comm, op.key.Seq)
	}
}

func (e *Engine) putDone(now step.Time, to int, p fabric.Piece) {
	if op := e.failing[p.Op]; op != nil {
		e.quiet(op)
		return
	}
	if op := e.ops[p.Op]; op != nil {
		op.puts--
		op.pieces.sent(to, p.Nth)
		e.node.Sent(now, p.Op.Comm, p.Op.Seq, 1)
	}
}

func closing(k taskKind, l *landing) *task {
	t := newTask(k)
	t.landing = l
	return t
}
