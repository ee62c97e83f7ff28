package engine

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/wire"
)

// landing is where chunks of one subgroup of an operation go. It is Placement.Data.
type landing struct {
	op    *operation
	place *mcast.Placement
	mem   *atomic.Pointer[[]byte] // the receive buffer, nil when it is the user's again
	left  uint32                  // chunks that the worker has not reported

	kernel fabric.OpenPlacement // nil: only the worker places chunks
	area   *sharedArea          // where it places them
	closed bool                 // it no longer does
	staged *place.Map           // chunks that the kernel has placed in a stage; nil: it places them where they belong
	seen   atomic.Uint64        // chunks that the kernel had counted when the worker looked last
}

// A receiver is the receive worker of one subgroup: a mcast.Intake and its I/O. It implements
// fabric.Sink.
type receiver struct {
	e    *Engine
	sub  int
	rx   fabric.Receiver
	cmds *queue
	in   *mcast.Intake

	slots []mcast.Slot // of the last Expect

	copied  atomic.Uint64 // chunks that were not received in place
	corrupt atomic.Uint64 // datagrams that were not what was sent
	opener  opener
	placed  atomic.Uint64

	linger  linger
	said    bool // that the network failed
	polled  bool // the poller serves it
	stopped bool
	deaf    atomic.Bool // the network gives it nothing
	busy    atomic.Bool // it has taken datagrams that it has not reported
}

func newReceiver(e *Engine, sub int, rx fabric.Receiver) *receiver {
	return &receiver{
		e: e, sub: sub, rx: rx, cmds: newQueue(), linger: newLinger(e.caps.Batch, e.caps.Room),
		in:    mcast.NewIntake(e.layout, e.flushAfter, &e.taken, newReport),
		slots: make([]mcast.Slot, max(1, e.caps.Batch)),
	}
}

var reports = sync.Pool{New: func() any {
	return &mcast.Report{Runs: make([]mcast.PlacedRun, 0, mcast.MaxRuns)}
}}

func newReport() *mcast.Report { return reports.Get().(*mcast.Report) }

func freeReport(r *mcast.Report) {
	clear(r.Runs)
	*r = mcast.Report{Runs: r.Runs[:0]}
	reports.Put(r)
}

// tryAgain is how long a worker waits after the network failed.
const tryAgain = 100 * time.Millisecond

// start begins the work, with a goroutine of its own unless the poller can do it: for the first
// subgroup, and for all if no two goroutines would run at once, or none has much to do.
func (w *receiver) start() {
	if c := &w.e.caps; c.Poller != nil && (w.sub == 0 || c.Placer != nil || w.e.alone) {
		w.polled = true // it may be served before Attach returns
		if w.rx.Attach(w, w.failed) {
			return
		}
		w.polled = false
	}
	go w.run()
}

// failed is what the poller calls when the network failed, or is closed: there is
// still the control side, which waits for answers.
func (w *receiver) failed(err error) {
	w.deaf.Store(true)
	w.flush(false)
	w.complain(err)
	w.drain()
	if !errors.Is(err, fabric.ErrClosed) {
		w.e.caps.Poller.Rest(tryAgain)
	}
}

func (w *receiver) complain(err error) {
	if !w.said && !errors.Is(err, fabric.ErrClosed) {
		w.said = true
		w.e.log.Error("receiving multicast failed; lost chunks will be fetched", "subgroup", w.sub, "err", err)
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
			w.flush(false)
		} else if w.deaf.Load() {
			w.deaf.Store(false)
		}
		w.drain()
		switch {
		case w.stopped:
		case err == nil:
			if d := w.pause(); d > 0 {
				nap(d)
			}
		case errors.Is(err, fabric.ErrClosed):
			w.wait(nil)
		default:
			w.complain(err)
			w.wait(time.After(tryAgain))
		}
	}
}

// pause is how long to let datagrams gather before the worker looks again.
func (w *receiver) pause() time.Duration {
	p := w.in.Last()
	if p == nil {
		return 0
	}
	return w.linger.next(w.placed.Load(), p.Data.(*landing).left)
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
		w.in.Open(t.landing.op.token, t.landing.place)
	case cmdClose:
		w.forget(t.landing)
	case cmdClaim:
		w.claim(t.read)
		ack := newTask(taskClaimed)
		ack.read = t.read
		w.e.push(ack)
	case cmdQuiet:
		w.forget(t.landing)
		ack := newTask(taskQuiet)
		ack.op = t.landing.op
		w.e.push(ack)
	case cmdStop:
		w.in.Each(func(p *mcast.Placement) { w.forget(p.Data.(*landing)) })
		w.stopped = true
		w.e.wg.Done()
	default:
	}
	t.free()
}

// claim claims chunks for a read. What was placed before is known before the read begins.
func (w *receiver) claim(r *read) {
	l := r.landing
	for busy := true; busy; {
		if r.won, busy = w.in.Claim(l.place, r.ranges, r.won); busy {
			nap(time.Microsecond) // a program in the kernel writes one of them just now
		}
	}
	won := wire.Chunks(r.won)
	l.left -= won
	if l.kernel != nil {
		l.kernel.Count(won)
		w.learn(l)
	}
	w.flush(false)
}

func (w *receiver) forget(l *landing) {
	if l.kernel != nil && !l.closed {
		l.closed = true
		l.kernel.Close()
		l.area.leave()
	}
	w.in.Close(l.place)
}

// Expect implements fabric.Sink: the chunks after the last one.
func (w *receiver) Expect(slots [][]byte) int {
	if w.e.master != nil {
		return 0 // sealed chunks are opened from where they were received
	}
	p, n := w.in.Expect(w.slots[:min(len(slots), len(w.slots))])
	if n == 0 {
		return 0
	}
	mem := p.Data.(*landing).mem.Load()
	if mem == nil {
		return 0
	}
	for i, s := range w.slots[:n] {
		slots[i] = (*mem)[s.Off : s.Off+int64(s.Len) : s.Off+int64(s.Len)]
	}
	return n
}

// Arrived implements fabric.Sink.
func (w *receiver) Arrived(h []fabric.Header) int {
	w.take()
	n := 0
	for n < len(h) && w.in.Fits(n, h[n].Token, h[n].Imm) && (!w.e.sums || w.intact(&h[n], w.slots[n])) {
		n++
	}
	w.in.Arrived(n)
	w.report()
	return n
}

// Chunk implements fabric.Sink.
func (w *receiver) Chunk(h fabric.Header, payload []byte) {
	w.take()
	if w.e.sums && h.Sum != h.Checksum(payload) {
		w.corrupt.Add(1)
		return
	}
	if !w.in.Knows(h.Token) {
		if w.e.probes.take(w.sub, h, payload) {
			return
		}
		// The operation may have been opened since: it was, before we said in the barrier
		// that we are ready.
		w.drain()
	}
	length := len(payload)
	if w.e.master != nil {
		length = sealedLength(length)
	}
	p, psn, off, v := w.in.Judge(h.Token, h.Comm, h.Imm, length)
	if p == nil {
		w.in.Ignore(nil, v, 1)
		return
	}
	l := p.Data.(*landing)
	mem := l.mem.Load()
	switch {
	case mem == nil:
		w.in.Ignore(nil, mcast.Stale, 1)
	case v == mcast.Duplicate && l.kernel != nil:
		// The kernel left a super-packet to us of which it had taken some.
	case v != mcast.Placed:
		w.in.Ignore(p, v, 1)
	case l.op.seal != nil:
		w.open(p, (*mem)[off:off+int64(length)], h, psn, payload)
	case p.IsShared() && !p.Take(psn): // the kernel was faster
	default:
		copy((*mem)[off:], payload)
		w.copied.Add(1)
		w.in.Place(p, wire.Range{PSN: psn, N: 1})
		if l.kernel != nil && l.kernel.Count(1) {
			w.learn(l) // the kernel has placed the others, and does not wake us
		}
	}
	w.report()
}

// take notes that datagrams were taken off the queue.
func (w *receiver) take() {
	if !w.busy.Load() {
		w.busy.Store(true)
	}
}

// pending reports whether datagrams wait for the worker, or it is at work on some. Any goroutine may
// call it.
func (w *receiver) pending() bool { return !w.deaf.Load() && (w.busy.Load() || w.rx.Pending()) }

// report hands over what there is to report, if that is enough.
func (w *receiver) report() {
	if w.in.Due() {
		w.flush(false)
	}
}

// Idle implements fabric.Sink.
func (w *receiver) Idle() {
	w.flush(false)
	if w.busy.Load() {
		w.busy.Store(false)
	}
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
	if !w.e.served.Load() {
		w.e.caps.Poller.Rest(w.pause())
	}
}

// flush hands over what there is to report. Offloaded says that the kernel took the datagrams.
func (w *receiver) flush(offloaded bool) {
	r := w.in.Flush()
	if r == nil {
		return
	}
	w.placed.Add(uint64(r.Chunks))
	for i := range r.Runs {
		r.Runs[i].Data.(*landing).left -= r.Runs[i].N
	}
	t := newTask(taskReport)
	t.rep = r
	if offloaded {
		t.n = 1
	}
	w.e.push(t)
}
