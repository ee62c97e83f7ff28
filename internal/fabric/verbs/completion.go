//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/fabric"
)

// completionQueue is a completion queue, with the channel of its events in Go's poller, so that waiting
// for a completion blocks a goroutine and not a thread.
type completionQueue struct {
	pollable
	dev  *Device
	ch   *C.struct_ibv_comp_channel
	cq   *C.struct_ibv_cq
	done [Batch]completion // result of the last poll

	take func(uintptr) bool // made once, to avoid allocations
	look func(uintptr)
	rc   C.int

	using sync.Mutex // held while take may run; stop waits for it

	lookMu sync.Mutex
	any    bool

	mu    sync.Mutex
	woken atomic.Bool // changes under mu

	stopped atomic.Bool
}

// past is a deadline that has passed. Not the zero time, which means none.
var past = time.Unix(1, 0)

func newCompletionQueue(d *Device, entries int) (*completionQueue, error) {
	ch, err := C.ibv_create_comp_channel(d.ctx)
	if ch == nil {
		return nil, d.errno("create a completion channel", err)
	}
	c := &completionQueue{dev: d, ch: ch}
	if c.pollable, err = newPollable(int(ch.fd), "completions"); err != nil {
		C.ibv_destroy_comp_channel(ch)
		return nil, d.errno("wait for a completion channel", err)
	}
	if c.cq, err = C.ibv_create_cq(d.ctx, C.int(entries), nil, ch, 0); c.cq == nil {
		_ = c.f.Close()
		C.ibv_destroy_comp_channel(ch)
		return nil, d.errno(fmt.Sprintf("create a completion queue of %d", entries), err)
	}
	c.take = func(uintptr) bool {
		c.rc = C.ac_events(ch)
		return c.rc != 0
	}
	c.look = func(fd uintptr) {
		p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, _ := unix.Poll(p[:], 0)
		c.any = n > 0
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

// read takes all events, or blocks for one until the deadline or stop.
func (c *completionQueue) read() (rc C.int, err error) {
	c.using.Lock()
	defer c.using.Unlock()
	err = c.raw.Read(c.take)
	return c.rc, err
}

// wait blocks until an event or Wake.
func (c *completionQueue) wait() error {
	rc, err := c.read()
	switch {
	case err == nil && rc < 0:
		return syscall.Errno(-rc)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	case err != nil && c.stopped.Load():
		return fabric.ErrClosed
	}
	return err
}

// waitFor blocks until an event, or for d. The event is not used with Wake.
func (c *completionQueue) waitFor(d time.Duration) {
	_ = c.f.SetReadDeadline(time.Now().Add(d)) // fails only when closed
	_, _ = c.read()                            // the caller polls for completions anyway
}

// Wake makes wait return until seen is called.
func (c *completionQueue) Wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.woken.Swap(true) {
		_ = c.f.SetReadDeadline(past) // fails only when closed, and then nothing blocks
	}
}

// seen resets Wake.
func (c *completionQueue) seen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.woken.Swap(false) {
		_ = c.f.SetReadDeadline(time.Time{}) // likewise
	}
}

// pending reports whether an event is there.
func (c *completionQueue) pending() bool {
	c.lookMu.Lock()
	defer c.lookMu.Unlock()
	c.any = false
	_ = c.raw.Control(c.look) // fails only when closed
	return c.any
}

// stop makes wait return fabric.ErrClosed, for good. When stop returns, nothing uses the channel: a
// wait or waitFor that was under way has ended, and a later one does not reach the channel. Like
// destroy, it does nothing for a queue that was not made.
func (c *completionQueue) stop() {
	if c != nil {
		c.stopped.Store(true)
		_ = c.f.Close() // ends a blocked read
		c.using.Lock()
		defer c.using.Unlock()
	}
}

// destroy frees the queue, after stop and after its queue pairs.
func (c *completionQueue) destroy() {
	if c != nil {
		c.dev.events.disown(unsafe.Pointer(c.cq))
		C.ibv_destroy_cq(c.cq)
		C.ibv_destroy_comp_channel(c.ch)
	}
}
