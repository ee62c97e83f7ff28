//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"
)

// completionQueue is a completion queue with the channel of its events.
type completionQueue struct {
	*event
	dev  *Device
	cq   *C.struct_ibv_cq
	done [Batch]completion // result of the last poll
}

func newCompletionQueue(d *Device, entries int) (*completionQueue, error) {
	ev, err := newEvent(d)
	if err != nil {
		return nil, err
	}
	c := &completionQueue{event: ev, dev: d}
	if c.cq, err = C.ibv_create_cq(d.ctx, C.int(entries), nil, ev.ch, 0); c.cq == nil {
		ev.stop()
		ev.destroy()
		return nil, d.errno(fmt.Sprintf("create a completion queue of %d", entries), err)
	}
	return c, nil
}

// own makes failed be called when the device reports that the queue failed.
func (c *completionQueue) own(failed func(error)) { c.dev.events.own(unsafe.Pointer(c.cq), failed) }

// poll takes completions into done, and returns how many, or -errno. With arm it spins for a moment,
// and if there is still none, the next one makes an event.
func (c *completionQueue) poll(arm bool) int {
	spins := 0
	if arm {
		spins = spin()
	}
	return int(C.ac_poll(c.cq, &c.done[0], Batch, C.int(spins), cbool(arm)))
}

// spin is how often a completion queue is polled before the goroutine blocks. That takes some
// microseconds, as long as a wake-up. With few processors, other goroutines need the time more.
func spin() int {
	if runtime.NumCPU() <= 2 {
		return 0
	}
	return 200
}

// destroy frees the queue, after stop and after its queue pairs.
func (c *completionQueue) destroy() {
	c.dev.events.disown(unsafe.Pointer(c.cq))
	C.ibv_destroy_cq(c.cq)
	c.event.destroy()
}
