package control

import (
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/engine/datapath"
	"github.com/allcast/allcast/internal/engine/queue"
	"github.com/allcast/allcast/internal/step"
)

// maxTurn is how many tasks a goroutine handles for others before it hands over. The caller of a
// collective has other work.
const maxTurn = 256

// push enqueues a task, and drains the queue unless another goroutine does.
func (c *Control) push(t *queue.Item[task]) {
	c.tasks.Push(t)
	c.work()
}

// work drains the queue. A goroutine that is already draining it sees the new tasks.
func (c *Control) work() {
	for left := maxTurn; !c.tasks.Empty(); {
		if !c.draining.CompareAndSwap(false, true) {
			return
		}
		left -= c.drain()
		c.draining.Store(false)
		if left <= 0 && !c.tasks.Empty() {
			go c.work()
			return
		}
	}
}

// drain handles the queued tasks and the timers that are due, and returns the number of tasks.
func (c *Control) drain() (n int) {
	if c.is(stopped) {
		for t := c.tasks.Take(); t != nil; t = t.Next {
			if b := t.Value.event.Buf; b != nil {
				b.Release()
			}
			n++
		}
		return n
	}
	for t := c.tasks.Take(); t != nil; t = c.tasks.Free(t) {
		c.handle(&t.Value)
		n++
	}
	for c.act(); ; {
		at, now := c.node.NextTimer(), c.now()
		if at > now {
			c.wind(at, now)
			return n
		}
		c.timer(now)
	}
}

func (c *Control) handle(t *task) {
	now := c.now()
	c.obs.TraceTime(now)
	switch t.kind {
	case taskCall:
		c.begin(now, t.call)
	case taskDo:
		t.do()
	case taskMessage:
		c.obs.TraceMessage(t.peer, &t.msg)
		c.node.Message(now, t.peer, &t.msg)
	case taskReport:
		if c.data.Accept(&t.event) {
			c.reported(now, &t.event)
		}
	case taskTick:
		c.clock.at = step.Never
		c.clock.due.Store(int64(step.Never))
	}
	c.act()
}

// reported tells the node of an event of the datapath.
func (c *Control) reported(now step.Time, ev *datapath.Event) {
	op := ev.Op
	switch ev.Kind {
	case datapath.ChunksPlaced:
		if ev.Chunks.Chunks > 0 {
			c.queuedAt = 0
		}
		c.node.Received(now, ev.Chunks, ev.Kernel)
		datapath.FreeReport(ev.Chunks)
	case datapath.PiecesPlaced:
		c.node.Pieces(now, ev.Peer, op.Key.Comm, op.Key.Seq, int(ev.Prefix), int(ev.Left))
	case datapath.EarlyData:
		c.obs.TraceHeard(ev.Peer, max(1, now))
		c.keep(now, ev)
		ev.Buf.Release()
	case datapath.Sent:
		c.node.Sent(now, op.Key.Comm, op.Key.Seq, ev.N)
	case datapath.Ready:
		if c.comms.joining[op.Key.Comm] == nil { // otherwise joined goes on
			c.opened(op)
		}
	case datapath.RegistrationFailed:
		// The others would wait for this rank.
		c.cfg.Logger.Error("the network cannot use a buffer, and the communicator is aborted",
			"comm", op.Key.Comm, "err", ev.Err)
		_ = c.node.Abort(op.Key.Comm) // it exists
	case datapath.ReadDone:
		sub, chunks, bytes := ev.Fetched()
		c.node.ReadDone(now, op.Key.Comm, op.Key.Seq, sub, chunks)
		if bytes > 0 {
			c.obs.TraceRepair(op.Key.Comm, op.Key.Seq, ev.Peer, bytes)
		}
	case datapath.Summed:
		c.node.Summed(now, op.Key.Comm, op.Key.Seq)
	case datapath.Wanted:
		c.node.Wanted(now, op.Key.Comm, op.Key.Seq, ev.N, ev.Try)
	case datapath.Fetched:
		psn, n := ev.Made()
		c.node.Fetched(now, op.Key.Comm, op.Key.Seq, psn, n)
	case datapath.Digested:
		c.node.Digested(now, op.Key.Comm, op.Key.Seq, ev.Sum)
	case datapath.Quiesced:
		c.quiesced(op)
	case datapath.PeerLost:
		c.lost(now, ev.Peer, ev.Err)
	default:
		panic("control: unexpected event of the datapath")
	}
}

// clock makes a goroutine look at the node's timers in time.
type clock struct {
	timer *time.Timer
	at    step.Time    // when the timer goes off; owned by the loop
	due   atomic.Int64 // at, for goroutines that poll the network
}

// wind sets the clock. A clock that goes off too early costs less than setting it with every message.
func (c *Control) wind(at, now step.Time) {
	if at < c.clock.at && !c.is(stopped) {
		c.clock.at = at
		c.clock.due.Store(int64(at))
		c.clock.timer.Reset(time.Duration(at - now))
	}
}

// tick makes the loop look at its timers, if one is due. A goroutine that polls the network calls it:
// while the goroutine sleeps in the kernel, the runtime may notice a timer 20 ms late.
func (c *Control) tick() {
	if c.clock.due.Load() <= int64(c.now()) {
		c.push(c.newTask(taskTick))
	}
}

// untilTick is how long it takes until then; negative: forever.
func (c *Control) untilTick() time.Duration {
	due := c.clock.due.Load()
	if due == int64(step.Never) {
		return -1
	}
	return max(time.Microsecond, time.Duration(due-int64(c.now())))
}

// queuePatience is how long datagrams may wait in the receive queues without one of them being placed.
// After that they count for nothing: they are foreign, or no worker takes them.
const queuePatience = 2 * step.Second

// timer lets the node look at its timers. Datagrams that wait in a receive queue, because their worker
// has not had its turn on a busy machine, are not lost.
func (c *Control) timer(now step.Time) {
	c.hear()
	switch {
	case !c.data.Pending():
		c.queuedAt = 0
	case c.queuedAt == 0:
		c.queuedAt = now
		c.node.Queued(now)
	case now-c.queuedAt < queuePatience:
		c.node.Queued(now)
	}
	c.obs.TraceTime(now)
	c.node.Timer(now)
	c.act()
}

// do runs a function on the loop and waits for it. It reports false if the loop has stopped.
func (c *Control) do(f func()) bool {
	select {
	case <-c.over:
		return false // nobody would handle the task
	default:
	}
	done := make(chan struct{})
	c.submit(func() { f(); close(done) })
	select {
	case <-done:
		return true
	case <-c.over:
		return false
	}
}

// submit runs a function on the loop, perhaps before it returns.
func (c *Control) submit(f func()) {
	t := c.newTask(taskDo)
	t.Value.do = f
	c.push(t)
}
