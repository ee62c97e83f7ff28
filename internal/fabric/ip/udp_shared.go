package ip

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/allcast/allcast/internal/fabric"
)

type udpCounters struct{ datagrams, malformed, calls, dropped atomic.Uint64 }

func (c *udpCounters) Stats() fabric.ReceiverStats {
	return fabric.ReceiverStats{
		Datagrams: c.datagrams.Load(), Dropped: c.dropped.Load(), Malformed: c.malformed.Load(), Calls: c.calls.Load(),
	}
}

// past is a deadline that has passed. The zero time would mean no deadline.
var past = time.Unix(1, 0)

// mcastWaker interrupts a read through its deadline. One lock guards the deadline and the flag that
// gives it meaning. A Wake is therefore never overwritten, and no deadline outlives its Wake.
type mcastWaker struct {
	mu     sync.Mutex
	woken  bool
	reader interface{ SetReadDeadline(time.Time) error }
}

// Wake makes reads fail with os.ErrDeadlineExceeded until seen is called.
func (w *mcastWaker) Wake() { w.set(true, past) }

// seen lets reads block again.
func (w *mcastWaker) seen() { w.set(false, time.Time{}) }

func (w *mcastWaker) set(woken bool, deadline time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.woken != woken {
		w.woken = woken
		_ = w.reader.SetReadDeadline(deadline) // fails only when closed, and then nothing blocks
	}
}

// udpPause is how long the next Await sleeps while a device's queue is full, since the kernel does not
// report when the queue has room. 0: the queue is not full.
type udpPause time.Duration

const (
	udpFirstPause = udpPause(20 * time.Microsecond)
	udpMaxPause   = udpPause(5 * time.Millisecond)
)

// explain turns the result of a send to a group into an error of the fabric, and notes whether the queue is
// full.
func (p *udpPause) explain(err error, group netip.AddrPort) error {
	switch {
	case err == nil:
		*p = 0
		return nil
	case errors.Is(err, net.ErrClosed):
		return fabric.ErrClosed
	case mcastNoBuffers(err):
		*p = max(*p, udpFirstPause)
		return fabric.ErrQueueFull
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.EAGAIN):
		return fabric.ErrBusy
	}
	return fmt.Errorf("multicast to %v: %w%s", group, err, udpAdvice(err))
}

// sleep backs off if the queue is full, for at most d, and reports whether the queue was full. Each
// sleep is twice as long as the one before.
func (p *udpPause) sleep(d time.Duration) bool {
	if *p == 0 {
		return false
	}
	time.Sleep(min(time.Duration(*p), d))
	*p = min(2**p, udpMaxPause)
	return true
}
