package ip

import (
	"sync"
	"time"
)

// mcastPast is a deadline that has passed. Not the zero time, which means none.
var mcastPast = time.Unix(1, 0)

// mcastWaker interrupts a read through its deadline. All changes of the deadline are
// under one lock, together with the flag that says what the deadline means: so a Wake
// is never overwritten, and a deadline never outlives the Wake that was seen.
type mcastWaker struct {
	mu     sync.Mutex
	woken  bool
	reader interface{ SetReadDeadline(time.Time) error }
}

// Wake makes reads fail with os.ErrDeadlineExceeded until it is seen.
func (w *mcastWaker) Wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.woken {
		return
	}
	w.woken = true
	_ = w.reader.SetReadDeadline(mcastPast) // fails only when closed, and then nothing waits
}

// seen lets reads wait again.
func (w *mcastWaker) seen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.woken = false
	_ = w.reader.SetReadDeadline(time.Time{}) // likewise
}
