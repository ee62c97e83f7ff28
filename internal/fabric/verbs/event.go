//go:build verbs

package verbs

// #include "shim.h"
import "C"

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/fabric"
)

// event is a completion channel in Go's poller, so that waiting for a completion blocks a goroutine
// and not a thread.
type event struct {
	pollable
	ch *C.struct_ibv_comp_channel

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

func newEvent(d *Device) (*event, error) {
	ch, err := C.ibv_create_comp_channel(d.ctx)
	if ch == nil {
		return nil, d.errno("create a completion channel", err)
	}
	e := &event{ch: ch}
	if e.pollable, err = newPollable(int(ch.fd), "completions"); err != nil {
		C.ibv_destroy_comp_channel(ch)
		return nil, d.errno("wait for a completion channel", err)
	}
	e.take = func(uintptr) bool {
		e.rc = C.ac_events(e.ch)
		return e.rc != 0
	}
	e.look = func(fd uintptr) {
		p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, _ := unix.Poll(p[:], 0)
		e.any = n > 0
	}
	return e, nil
}

// read takes all events, or blocks for one until the deadline or stop.
func (e *event) read() (rc C.int, err error) {
	e.using.Lock()
	defer e.using.Unlock()
	err = e.raw.Read(e.take)
	return e.rc, err
}

// wait blocks until an event or Wake, and reports whether it was Wake.
func (e *event) wait() (woken bool, err error) {
	rc, err := e.read()
	switch {
	case err == nil && rc < 0:
		return false, syscall.Errno(-rc)
	case err == nil:
		return false, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return true, nil
	case e.stopped.Load():
		return false, fabric.ErrClosed
	}
	return false, err
}

// waitFor blocks until an event, or for d. The event is not used with Wake.
func (e *event) waitFor(d time.Duration) {
	_ = e.f.SetReadDeadline(time.Now().Add(d)) // fails only when closed
	_, _ = e.read()                            // the caller polls for completions anyway
}

// Wake makes wait return until seen is called.
func (e *event) Wake() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.woken.Swap(true) {
		_ = e.f.SetReadDeadline(past) // fails only when closed, and then nothing blocks
	}
}

// seen resets Wake, and reports whether it was called.
func (e *event) seen() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.woken.Swap(false) {
		return false
	}
	_ = e.f.SetReadDeadline(time.Time{}) // likewise
	return true
}

// pending reports whether an event is there.
func (e *event) pending() bool {
	e.lookMu.Lock()
	defer e.lookMu.Unlock()
	e.any = false
	_ = e.raw.Control(e.look) // fails only when closed
	return e.any
}

// stop makes wait return fabric.ErrClosed, for good. When stop returns, nothing uses the channel: a
// wait or waitFor that was under way has ended, and a later one does not reach the channel.
func (e *event) stop() {
	e.stopped.Store(true)
	_ = e.f.Close() // ends a blocked read
	e.using.Lock()
	defer e.using.Unlock()
}

// destroy frees the channel, after stop and after its completion queue.
func (e *event) destroy() { C.ibv_destroy_comp_channel(e.ch) }
