package engine

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/protocol"
)

// lane is an operation at a receive worker.
type lane struct {
	*protocol.Lane               // nil: placed has the bitmap
	placed         fabric.Placed // nil: the worker places its chunks
	left           uint32        // not placed yet; what is fetched counts as such
	op             *operation
	mem            *atomic.Pointer[[]byte] // the receive buffer, nil when it is the user's again
}

// A receiver is the receive worker of one subgroup. It implements fabric.Sink.
type receiver struct {
	e    *Engine
	sub  int
	rx   fabric.Receiver
	cmds *queue
	ops  map[uint64]*lane // by token
	last *lane            // of the last datagram,
	next uint32           // and the chunk after it
	rep  *report
	runs []fabric.Run // of one Scan

	guess   *lane // of the last Expect,
	guessed uint32
	copied  atomic.Uint64 // chunks that were not received in place
	corrupt atomic.Uint64 // datagrams that were not what was sent
	opener  opener
	placed  atomic.Uint64

	linger  linger
	said    bool // that the network failed
	polled  bool // the poller serves it
	stopped bool
	deaf    atomic.Bool // the network gives it nothing
}

func newReceiver(e *Engine, sub int, rx fabric.Receiver) *receiver {
	return &receiver{e: e, sub: sub, rx: rx, cmds: newQueue(), ops: map[uint64]*lane{}, linger: newLinger(e.caps.Batch, e.caps.Room)}
}

// tryAgain is how long a worker waits after the network failed.
const tryAgain = 100 * time.Millisecond

// start begins the work, with a goroutine of its own unless the poller can do it: for the first
// subgroup, and for all if no two goroutines would run at once, or none has much to do.
func (w *receiver) start() {
	if p := w.e.cfg.Poller; p != nil && (w.sub == 0 || w.e.cfg.Placer != nil || w.e.alone) {
		if rx, ok := w.rx.(fabric.Polled); ok {
			w.polled = true // it may be served before Attach returns
			if rx.Attach(p, w, w.failed) {
				return
			}
			w.polled = false
		}
	}
	go w.run()
}

// failed is what the poller calls when the network failed, or is closed: there is
// still the control side, which waits for answers.
func (w *receiver) failed(err error) {
	w.deaf.Store(true)
	w.flush()
	w.complain(err)
	w.drain()
	if !errors.Is(err, fabric.ErrClosed) {
		w.e.cfg.Poller.Rest(tryAgain)
	}
}

func (w *receiver) complain(err error) {
	if !w.said && !errors.Is(err, fabric.ErrClosed) {
		w.said = true
		w.e.log.Error("receiving multicast failed; what is lost will be fetched", "subgroup", w.sub, "err", err)
	}
}

// run works until it is told to stop. When the network fails, or is closed, there
// is still the control side, which waits for answers.
func (w *receiver) run() {
	w.e.pin()
	for !w.stopped {
		err := w.rx.Receive(w)
		if err != nil {
			w.deaf.Store(true)
			w.flush()
		} else if w.deaf.Load() {
			w.deaf.Store(false)
		}
		w.drain()
		switch {
		case w.stopped:
		case err == nil:
			if w.last != nil {
				if d := w.linger.next(w.placed.Load(), w.last.Missing()); d > 0 {
					nap(d)
				}
			}
		case errors.Is(err, fabric.ErrClosed):
			w.wait(nil)
		default:
			w.complain(err)
			w.wait(time.After(tryAgain))
		}
	}
}

// wait waits for commands, without the network.
func (w *receiver) wait(end <-chan time.Time) {
	if w.cmds.sleep() {
		select {
		case <-w.cmds.wake:
		case <-end:
		}
		w.cmds.sleeping.Store(false)
	}
	w.drain()
}

// command gives the worker something to do, at once if asked to, else before it
// looks at another datagram.
func (w *receiver) command(t *task, now bool) {
	w.cmds.push(t)
	if now {
		w.rx.Wake()
	}
}

func (w *receiver) drain() {
	for t := w.cmds.take(); t != nil; {
		next := t.next
		w.obey(t)
		t = next
	}
}

func (w *receiver) obey(t *task) {
	switch t.kind {
	case cmdOpen:
		w.ops[t.lane.op.token] = t.lane
	case cmdClose:
		w.forget(t.lane)
	case cmdClaim:
		if p := t.lane.placed; p != nil {
			p.Claim(fabric.Run{PSN: t.psn, N: t.n})
			w.learn(t.lane)
		} else {
			t.lane.Claim(t.psn, t.n)
		}
		w.flush() // what came before is known before the read begins
		ack := newTask(taskClaimed)
		ack.op, ack.id = t.lane.op, t.id
		w.e.push(ack)
	case cmdQuiet:
		w.forget(t.lane)
		ack := newTask(taskQuiet)
		ack.op = t.lane.op
		w.e.push(ack)
	case cmdStop:
		for _, l := range w.ops {
			w.forget(l)
		}
		w.stopped = true
		w.e.wg.Done()
	default:
	}
	t.free()
}

func (w *receiver) forget(l *lane) {
	if l.placed != nil && w.ops[l.op.token] == l {
		l.placed.Close()
	}
	delete(w.ops, l.op.token)
	if w.last == l {
		w.last = nil
	}
	if w.guess == l {
		w.guess = nil
	}
}

// find returns the lane of a datagram.
func (w *receiver) find(token uint64) *lane {
	if w.last != nil && w.last.op.token == token {
		return w.last
	}
	if l := w.ops[token]; l != nil {
		return l
	}
	// The operation may have been opened since: it was, before we said in the barrier
	// that we are ready.
	w.drain()
	return w.ops[token]
}

// Expect implements fabric.Sink: the chunks after the last one.
func (w *receiver) Expect(slots [][]byte) int {
	if w.e.master != nil {
		return 0 // what is sealed is opened from where it was received
	}
	w.guess, w.guessed = w.last, w.next
	if w.last == nil {
		return 0
	}
	p := w.last.mem.Load()
	if p == nil {
		return 0
	}
	n := 0
	for n < len(slots) {
		off, length, ok := w.last.Free(w.next + uint32(n))
		if !ok {
			break
		}
		slots[n] = (*p)[off : off+int64(length) : off+int64(length)]
		n++
		if length != len(slots[0]) {
			break // the end of a block: the last of its super-packet
		}
	}
	return n
}

// Arrived implements fabric.Sink.
func (w *receiver) Arrived(h []fabric.Header) int {
	l := w.guess
	if l == nil {
		return 0
	}
	for i := range h {
		psn := w.guessed + uint32(i)
		if h[i].Token != l.op.token || h[i].Imm != w.e.layout.Imm(l.op.key.Seq, psn) {
			return i
		}
		off, length, ok := l.Free(psn)
		if !ok || w.e.sums && w.damaged(l, &h[i], off, length) {
			return i
		}
		l.Accept(psn, length)
		w.note(l, psn)
	}
	return len(h)
}

// Chunk implements fabric.Sink.
func (w *receiver) Chunk(h fabric.Header, payload []byte) {
	if w.e.sums && h.Sum != h.Checksum(payload) {
		w.corrupt.Add(1)
		return
	}
	r := w.report()
	l := w.find(h.Token)
	if l == nil {
		r.ignored.Stale++
		return
	}
	slot, psn := w.e.layout.Split(h.Imm)
	p := l.mem.Load()
	if slot != w.e.layout.Slot(l.op.key.Seq) || h.Comm != l.op.key.Comm || p == nil {
		r.ignored.Stale++
		return
	}
	switch {
	case l.op.seal != nil:
		w.open(l, *p, h, psn, payload)
		return
	case l.placed != nil:
		w.take(l, *p, psn, payload)
		return
	}
	off, v := l.Accept(psn, len(payload))
	if v == protocol.Placed {
		copy((*p)[off:], payload)
		w.copied.Add(1)
		w.note(l, psn)
		return
	}
	w.ignore(l, v)
}

// ignore counts a datagram that was not placed.
func (w *receiver) ignore(l *lane, v protocol.Verdict) {
	r := w.report()
	switch v {
	case protocol.Placed:
	case protocol.Duplicate:
		r.ignored.Duplicates++
	case protocol.Late:
		r.ignored.Late++
		r.comm = l.op.key.Comm
	case protocol.Foreign:
		r.ignored.Foreign++
	}
}

// note adds a placed chunk to the report.
func (w *receiver) note(l *lane, psn uint32) {
	w.last, w.next = l, psn+1
	w.noteRun(l, psn, 1)
}

func (w *receiver) noteRun(l *lane, psn, n uint32) {
	r := w.report()
	r.chunks += n
	if k := len(r.runs) - 1; k >= 0 && r.runs[k].op == l.op && r.runs[k].psn+r.runs[k].n == psn {
		r.runs[k].n += n
	} else {
		r.runs = append(r.runs, run{l.op, psn, n})
	}
	if len(r.runs) == maxRuns || r.chunks >= w.e.flushAfter {
		w.flush()
	}
}

func (w *receiver) report() *report {
	if w.rep == nil {
		w.rep = reports.Get().(*report)
		w.rep.sub = w.sub
	}
	return w.rep
}

// Idle implements fabric.Sink.
func (w *receiver) Idle() {
	w.flush()
	if w.polled {
		if w.deaf.Load() {
			w.deaf.Store(false)
		}
		w.drain()
		w.rest()
	}
}

// rest lets some gather before the poller looks again, if nobody waits for an operation.
func (w *receiver) rest() {
	if w.last != nil && !w.e.served.Load() {
		w.e.cfg.Poller.Rest(w.linger.next(w.placed.Load(), w.last.Missing()))
	}
}

func (w *receiver) flush() {
	if w.rep == nil {
		return
	}
	w.placed.Add(uint64(w.rep.chunks))
	t := newTask(taskReport)
	t.rep, w.rep = w.rep, nil
	w.e.push(t)
}
