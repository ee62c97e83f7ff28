package engine

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/protocol"
)

// operation is one round of a call that is open.
type operation struct {
	key       fabric.OpKey
	token     uint64
	call      *call
	geo       *protocol.Geometry // nil: point to point
	seal      *sealing           // nil: its datagrams are not sealed
	lanes     []*lane            // by subgroup, nil where there is nothing to receive; nil: it does not multicast
	mem       atomic.Pointer[[]byte]
	cancelled atomic.Bool

	// Of who runs the node.
	puts    int  // handed to the fabric and not done
	placing int  // reads straight into place that have not ended
	waiting int  // answers that a failing operation waits for
	failing bool // it is being made quiet
	gone    bool // the node no longer knows it
	summing bool // somebody sums up what it received
}

// begin hands a call to the node.
func (e *Engine) begin(now protocol.Time, k *call) {
	e.reqs++
	req := e.reqs
	e.calls[req] = k
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

// end reports a call.
func (e *Engine) end(req uint64, err error) {
	k := e.calls[req]
	delete(e.calls, req)
	if err == nil {
		err = k.finish()
	}
	k.req.err = err
	wait := e.ended(k, err)
	if k.area != nil {
		k.area.Release()
		e.bulk.Store(false) // what was fetched was never placed; other calls' look says if there is more
	}
	k.mem, k.Send, k.Recv = nil, nil, nil
	if err != nil && !e.closing.Load() {
		// The caller may end because of it. Who only sees that would take us for the
		// cause: the verdict leaves first.
		go func() {
			e.rel.Flush(lastWords)
			wait()
			e.report(&k.req)
		}()
	} else {
		e.report(&k.req)
	}
	e.checkIdle()
}

// report ends a request, and the sleep of who waits for it.
func (e *Engine) report(r *Request) {
	r.end()
	if e.asleep.Load() {
		e.cfg.Poller.Kick()
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
		e.msg = protocol.AppendMsg(e.msg[:0], &a.Msg)
		if follows(a, next) {
			e.rel.SendMore(a.To, e.msg)
		} else {
			e.rel.Send(a.To, e.msg)
		}
	case node.Open:
		e.open(key, e.calls[a.Req], a.Geometry)
		e.recall(key)
	case node.Multicast:
		t := newTask(cmdMulticast)
		t.op, t.sub, t.psn, t.n = e.ops[key], a.Sub, a.PSN, a.N
		e.send.command(t)
	case node.Read:
		e.read(e.ops[key], a)
	case node.Put:
		op := e.ops[key]
		op.puts++
		e.rel.Put(a.To, fabric.Piece{Op: key, Nth: a.PSN, Len: a.Len}, (*op.call.mem)[a.Off:a.Off+a.Len])
	case node.Apply:
		e.apply(pieceKey{key, a.To, a.PSN}, a.Off)
	case node.Release:
		op := e.ops[key]
		e.forget(op)
		for sub, l := range op.lanes {
			if l != nil {
				e.recvs[sub].command(closing(cmdClose, l), false)
			}
		}
	case node.Quiesce:
		e.quiesce(e.ops[key])
	case node.Done:
		if a.Err != nil {
			e.forgetEarly(a.Comm)
		}
		switch {
		case a.Err == nil:
			e.end(a.Req, nil)
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

// open lets an operation's buffers be written and read.
func (e *Engine) open(key fabric.OpKey, k *call, geo *protocol.Geometry) {
	op := &operation{key: key, call: k, geo: geo}
	op.mem.Store(k.mem)
	e.ops[key] = op
	if geo == nil || k.size == 1 {
		return
	}
	op.token = e.tokens.of(e.names[key.Comm], key.Seq)
	op.seal = e.sealing(key, k)
	e.rel.Register(key, *k.mem)
	op.lanes = make([]*lane, geo.Subgroups())
	for sub := range op.lanes {
		// Who receives nothing, as a root, must not be told of it: no datagram would ever
		// make the worker look at what it was told.
		if _, own := geo.Block(sub, k.rank); own == geo.PSNs(sub) {
			continue
		}
		l := &lane{op: op, mem: &op.mem}
		if !e.place(l, sub) {
			l.Lane = protocol.NewLane(geo, sub, k.rank)
		}
		op.lanes[sub] = l
		t := newTask(cmdOpen)
		t.lane = l
		e.recvs[sub].command(t, false)
	}
}

// forget takes an operation's buffers away from the reliable side; the workers
// have their own ways.
func (e *Engine) forget(op *operation) {
	op.gone = true
	op.mem.Store(nil)
	delete(e.ops, op.key)
	if op.lanes != nil {
		e.rel.Unregister(op.key)
	}
	for id, r := range e.reads {
		if r.op == op {
			delete(e.reads, id)
		}
	}
	for k := range e.pieces {
		if k.op == op.key {
			delete(e.pieces, k)
		}
	}
}

// quiesce sees that nothing touches a failed operation's buffers any more.
func (e *Engine) quiesce(op *operation) {
	op.failing = true
	op.cancelled.Store(true)
	e.forget(op)
	op.waiting = op.puts + op.placing
	if op.summing {
		op.waiting++
	}
	if op.lanes != nil {
		op.waiting++
		t := newTask(cmdQuiet)
		t.op = op
		e.send.command(t)
		for sub, l := range op.lanes {
			if l != nil {
				op.waiting++
				e.recvs[sub].command(closing(cmdQuiet, l), true)
			}
		}
	}
	if op.puts+op.placing > 0 {
		e.failing[op.key] = op
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
	if op.failing && op.waiting == 0 {
		op.failing = false
		delete(e.failing, op.key)
		e.node.Quiesced(op.key.Comm, op.key.Seq)
	}
}

func (e *Engine) putDone(now protocol.Time, key fabric.OpKey) {
	if op := e.failing[key]; op != nil {
		e.quiet(op)
		return
	}
	if op := e.ops[key]; op != nil {
		op.puts--
		e.node.Sent(now, key.Comm, key.Seq, 1)
	}
}

func closing(k taskKind, l *lane) *task {
	t := newTask(k)
	t.lane = l
	return t
}

// unregistered gives an operation up whose buffer the network cannot use: the others would
// wait for it.
func (e *Engine) unregistered(key fabric.OpKey, err error) {
	e.log.Error("a buffer cannot be used by the network: the communicator is given up", "comm", key.Comm, "err", err)
	if e.ops[key] != nil {
		_ = e.node.Abort(key.Comm) // it exists
	}
}
