package datapath

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/engine/queue"
	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/seal"
	"github.com/allcast/allcast/internal/wire"
)

// landing is where the chunks of one stream of an operation go. It is Placement.Data.
type landing struct {
	op    *Operation
	place *mcast.Placement
	recv  *receiver
	left  uint32 // chunks that the worker has not reported

	kernel fabric.OpenPlacement // nil: only the worker places chunks
	area   *sharedArea          // where the kernel places them
	closed bool                 // the kernel's placement is closed
	staged *place.Map           // chunks that the kernel has placed in a stage; nil: it places them in the buffer
	seen   atomic.Uint64        // chunks that the kernel had counted when the worker looked last
}

// workerState is the state of a receive worker. Only the worker changes it; other goroutines read it
// to find out whether received datagrams wait for the worker.
//
//	workerIdle, workerDeaf -> workerBusy     a datagram came
//	workerBusy, workerDeaf -> workerIdle     the queue is empty, and everything is reported
//	any                    -> workerDeaf     the network failed
//	any                    -> workerStopped  commandStop; the worker obeys no further command
type workerState uint32

const (
	workerIdle    workerState = iota
	workerBusy                // it has taken datagrams that it has not reported
	workerDeaf                // the network gives it nothing
	workerStopped             // its placements are closed
)

// A receiver is the receive worker of one stream: a mcast.Intake and its I/O, and a fabric.Sink. What it
// writes for each datagram is on cache lines of its own.
type receiver struct {
	_        [cacheLine]byte
	d        *Datapath
	stream   int
	rx       fabric.Receiver
	poller   fabric.Poller // runs the worker; nil: a goroutine of its own does
	pin      sync.Once     // binds the poller's goroutine to a processor
	landings int           // landings that are open; owned by control's goroutine
	cmds     *queue.Queue[command]
	in       *mcast.Intake
	slots    []mcast.Slot // of the last Expect
	opener   opener
	early    earlyTokens
	kept     atomic.Int32 // calls for which early datagrams are kept
	linger   linger
	state    atomic.Uint32 // workerState
	logged   sync.Once     // guards the log message of the first failure

	placed  atomic.Uint64 // chunks
	copied  atomic.Uint64 // chunks that were not received in place
	corrupt atomic.Uint64 // datagrams changed on the way, or forged
	_       [cacheLine]byte
}

const cacheLine = 64

func newReceiver(d *Datapath, stream int, rx fabric.Receiver) *receiver {
	return &receiver{
		d: d, stream: stream, rx: rx, cmds: queue.New[command](), linger: newLinger(d.caps.Batch, d.caps.Room),
		in:    mcast.NewIntake(d.cfg.Layout, d.Credit.flushAfter, &d.Credit.Taken, newReport),
		slots: make([]mcast.Slot, max(1, d.caps.Batch)),
		early: earlyTokens{tokens: newTokens(d.cfg.Secret)},
	}
}

var reports = sync.Pool{New: func() any {
	return &mcast.Report{Runs: make([]mcast.PlacedRun, 0, mcast.MaxRuns)}
}}

func newReport() *mcast.Report { return reports.Get().(*mcast.Report) }

// FreeReport reuses a report of ChunksPlaced that control has handled.
func FreeReport(r *mcast.Report) {
	clear(r.Runs)
	*r = mcast.Report{Runs: r.Runs[:0]}
	reports.Put(r)
}

// start begins the work, on a poller that may run the worker before Attach returns, or else on a
// goroutine of its own.
func (w *receiver) start() {
	if w.poller = w.d.poller(w.stream); w.poller != nil {
		if w.rx.Attach(w.poller, w, w.failed) {
			return
		}
		w.poller = nil
	}
	go w.run()
}

// shares reports whether a goroutine that waits for a call may run the worker.
func (w *receiver) shares() bool { return w.poller != nil && w.poller == w.d.caps.Poller }

func (w *receiver) is(s workerState) bool { return w.state.Load() == uint32(s) }

// become changes the state, unless the worker has stopped.
func (w *receiver) become(s workerState) {
	if now := workerState(w.state.Load()); now != s && now != workerStopped {
		w.state.Store(uint32(s))
	}
}

// failed is what the poller calls when the network failed or is closed. Commands are still answered.
func (w *receiver) failed(err error) {
	w.fail(err)
	w.drain()
	if !errors.Is(err, fabric.ErrClosed) {
		w.poller.Rest(retryAfter)
	}
}

// fail notes that the network failed, and logs the first failure.
func (w *receiver) fail(err error) {
	w.become(workerDeaf)
	w.flush(false)
	if !errors.Is(err, fabric.ErrClosed) {
		w.logged.Do(func() {
			w.d.cfg.Logger.Error("receiving multicast failed; lost chunks will be fetched", "stream", w.stream, "err", err)
		})
	}
}

// run is the worker's goroutine. It answers commands even after the network has failed or is closed.
func (w *receiver) run() {
	w.d.pin()
	for !w.is(workerStopped) {
		err := w.rx.Receive(w)
		if err != nil {
			w.fail(err)
		}
		w.drain()
		switch {
		case w.is(workerStopped):
		case err == nil:
			if d := w.pause(); d > 0 {
				nap(d)
			}
		case errors.Is(err, fabric.ErrClosed):
			w.wait(nil)
		default:
			w.wait(time.After(retryAfter))
		}
	}
}

// pause is how long to let datagrams gather before the worker looks again.
func (w *receiver) pause() time.Duration {
	return w.linger.next(w.placed.Load(), w.missing())
}

// missing is the number of chunks that the worker's last operation misses.
func (w *receiver) missing() uint32 {
	p := w.in.Last()
	if p == nil {
		return 0
	}
	return p.Data.(*landing).left
}

// wait waits for commands, without the network.
func (w *receiver) wait(end <-chan time.Time) {
	if w.cmds.Sleep() {
		select {
		case <-w.cmds.Wake():
		case <-end:
		}
		w.cmds.Awake()
	}
	w.drain()
}

// command queues a command. With now set it wakes the worker, which else obeys before the next datagram.
func (w *receiver) command(c command, now bool) {
	t := w.cmds.Item()
	t.Value = c
	w.cmds.Push(t)
	if now {
		w.rx.Wake()
	}
}

func (w *receiver) drain() {
	for t := w.cmds.Take(); t != nil; t = w.cmds.Free(t) {
		w.obey(&t.Value)
	}
}

func (w *receiver) obey(c *command) {
	switch c.kind {
	case commandOpen:
		w.in.Open(c.landing.op.token, c.landing.place)
		w.recall(c.landing.op)
	case commandForget:
		w.in.Forget(c.comm)
		w.kept.Store(int32(w.in.Kept()))
	case commandClose:
		w.forget(c.landing)
	case commandClaim:
		w.claim(c.read)
		w.d.sink.Report(Event{Kind: claimed, read: c.read})
	case commandQuiesce:
		w.forget(c.landing)
		w.d.sink.Report(Event{Kind: quiet, Op: c.landing.op})
	case commandStop:
		w.in.Each(func(p *mcast.Placement) { w.forget(p.Data.(*landing)) })
		w.become(workerStopped)
		w.d.workers.Done()
	default:
		panic("datapath: unknown command for a receive worker")
	}
}

// claim claims chunks for a read. It reports the chunks that were placed before, so that control knows
// them when the read begins.
func (w *receiver) claim(r *read) {
	l := r.landing
	for busy := true; busy; {
		if r.won, busy = w.in.Claim(l.place, r.ranges, r.won); busy {
			nap(time.Microsecond) // a program in the kernel writes one of them at this moment
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
	if w.d.protect.master != nil {
		return 0 // sealed chunks are decrypted from where they were received
	}
	if !w.cmds.Empty() {
		w.drain() // the next datagram may be the first one of an operation
	}
	p, n := w.in.Expect(w.slots[:min(len(slots), len(w.slots))])
	if n == 0 {
		return 0
	}
	mem := p.Data.(*landing).op.mem.Load()
	if mem == nil {
		return 0
	}
	for i, s := range w.slots[:n] {
		slots[i] = (*mem)[s.Off : s.Off+int64(s.Len) : s.Off+int64(s.Len)]
	}
	return n
}

// Arrived implements fabric.Sink.
func (w *receiver) Arrived(h []wire.Header) int {
	w.become(workerBusy)
	n := 0
	for n < len(h) && w.in.Fits(n, h[n].Token, h[n].Imm) && (!w.d.protect.sums || w.intact(&h[n], w.slots[n])) {
		n++
	}
	w.in.Arrived(n)
	w.report()
	return n
}

// Chunk implements fabric.Sink.
func (w *receiver) Chunk(h wire.Header, payload []byte) {
	w.become(workerBusy)
	if w.d.protect.sums && h.Sum != checksum(&h, payload) {
		w.corrupt.Add(1)
		return
	}
	if !w.in.Knows(h.Token) {
		if w.d.Probes.take(w.stream, h, payload) {
			return
		}
		// The operation may have been opened since: the command came before this rank said in the
		// barrier that it is ready.
		w.drain()
		if w.keep(h, payload) {
			return
		}
	}
	length := len(payload)
	if w.d.protect.master != nil {
		length -= seal.TagSize
	}
	p, psn, off, v := w.in.Judge(h.Token, h.Comm, h.Imm, length)
	if p == nil {
		w.in.Ignore(nil, v, 1)
		return
	}
	l := p.Data.(*landing)
	mem := l.op.mem.Load()
	switch {
	case mem == nil:
		w.in.Ignore(nil, mcast.Stale, 1)
	case v == mcast.Duplicate && l.kernel != nil:
		// The kernel passed on a super-packet of which it had placed some chunks.
	case v != mcast.Placed:
		w.in.Ignore(p, v, 1)
	case l.op.seal != nil:
		w.decrypt(p, (*mem)[off:off+int64(length)], h, psn, payload)
	case p.IsShared() && !p.Take(psn): // the kernel was faster
	default:
		copy((*mem)[off:], payload)
		w.copied.Add(1)
		w.in.Place(p, wire.Range{PSN: psn, N: 1})
		if l.kernel != nil && l.kernel.Count(1) {
			w.learn(l) // the kernel has placed the others, and does not wake the worker
		}
	}
	w.report()
}

// pending reports whether the worker has datagrams of operations to handle. Control's goroutine calls it.
func (w *receiver) pending() bool {
	return w.landings > 0 && !w.is(workerDeaf) && (w.is(workerBusy) || w.rx.Pending())
}

// report hands over what there is to report, if that is enough.
func (w *receiver) report() {
	if w.in.Due() {
		w.flush(false)
	}
}

// Idle implements fabric.Sink.
func (w *receiver) Idle() {
	w.flush(false)
	w.become(workerIdle)
	if w.poller == nil {
		return
	}
	w.drain()
	if !w.shares() {
		if w.stream <= len(w.d.pollers) { // the first stream of its worker
			w.pin.Do(w.d.pin)
		}
		w.poller.Rest(w.pause())
	} else if w.d.Polling.Leader() == NoLeader {
		w.poller.Rest(w.pause()) // lets datagrams gather while nobody waits for a call
	}
}

// flush hands over what there is to report. With kernel set, the kernel took the datagrams.
func (w *receiver) flush(kernel bool) {
	r := w.in.Flush()
	if r == nil {
		return
	}
	w.placed.Add(uint64(r.Chunks))
	for i := range r.Runs {
		r.Runs[i].Data.(*landing).left -= r.Runs[i].N
	}
	w.d.sink.Report(Event{Kind: ChunksPlaced, Chunks: r, Kernel: kernel})
}
