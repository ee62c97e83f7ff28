package rendezvous

import "time"

const (
	firstReminder = 5 * time.Second
	nextReminder  = 10 * time.Second
)

// reminder says when to warn that ranks are missing.
type reminder struct {
	C     <-chan time.Time
	timer *time.Timer // nil in tests
}

func newReminder() *reminder {
	t := time.NewTimer(firstReminder)
	return &reminder{C: t.C, timer: t}
}

// next starts the time to the next warning.
func (r *reminder) next() {
	if r.timer != nil {
		r.timer.Reset(nextReminder)
	}
}

func (r *reminder) stop() {
	if r.timer != nil {
		r.timer.Stop()
	}
}
