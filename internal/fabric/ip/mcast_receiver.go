package ip

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/fabric"
)

type udpCounters struct {
	datagrams, malformed, calls, dropped atomic.Uint64
}

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
func (w *mcastWaker) Wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.woken {
		return
	}
	w.woken = true
	_ = w.reader.SetReadDeadline(past) // fails only when closed, and then nothing blocks
}

// seen lets reads block again.
func (w *mcastWaker) seen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.woken = false
	_ = w.reader.SetReadDeadline(time.Time{}) // likewise
}
