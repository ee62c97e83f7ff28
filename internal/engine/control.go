package engine

import (
	"time"

	"github.com/allcast/allcast/internal/step"
)

// The control side of the engine is a state machine that one goroutine at a time runs:
// whoever brings something to do does it, and what others bring meanwhile. To wake a
// goroutine of its own for every message would cost more than most messages do.

// turn is how many tasks a goroutine does for others before it hands over: the caller
// of a collective has other things to do.
const turn = 256

// push adds a task, and sees that somebody does it.
func (e *Engine) push(t *task) {
	e.tasks.push(t)
	e.work()
}

// work does what there is to do, unless somebody is at it: they will see it.
func (e *Engine) work() {
	for left := turn; !e.tasks.empty(); {
		if !e.running.CompareAndSwap(false, true) {
			return
		}
		left -= e.round()
		e.running.Store(false)
		if left <= 0 && !e.tasks.empty() {
			go e.work()
			return
		}
	}
}

// round does what is queued and says how many tasks that were.
func (e *Engine) round() (n int) {
	if e.stopped {
		for t := e.tasks.take(); t != nil; t = t.next {
			if t.buf != nil {
				t.buf.Release()
			}
			n++
		}
		return n
	}
	for t := e.tasks.take(); t != nil; n++ {
		next := t.next
		e.handle(t)
		t.free()
		t = next
	}
	for e.act(); ; {
		at, now := e.node.NextTimer(), e.now()
		if at > now {
			e.wind(at, now)
			return n
		}
		e.timer(now)
	}
}

// wind sees that somebody looks at the clock in time. One that goes off too early is
// cheaper than one that is set again with every message.
func (e *Engine) wind(at, now step.Time) {
	if at < e.clockAt && !e.stopped {
		e.clockAt = at
		e.due.Store(int64(at))
		e.clock.Reset(time.Duration(at - now))
	}
}

// tick looks at the clock, if it is time. A goroutine that serves the network calls it: while that
// sleeps in the kernel, the runtime may take twenty milliseconds to notice that its timer is due.
func (e *Engine) tick() {
	if e.due.Load() <= int64(e.now()) {
		e.push(newTask(taskTick))
	}
}

// untilTick is how long that is from now; negative: for ever.
func (e *Engine) untilTick() time.Duration {
	due := e.due.Load()
	if due == int64(step.Never) {
		return -1
	}
	return max(time.Microsecond, time.Duration(due-int64(e.now())))
}

// stop ends it: what comes now is thrown away.
func (e *Engine) stop() {
	e.stopped = true
	e.clock.Stop()
	close(e.over)
}
