package engine

import "time"

// A wake-up costs more than a super-packet: with a thread that sleeps until each one
// comes, most of the time goes to waking it. So while much of an operation is still to
// come, a worker that found its queue empty lets some gather before it looks again, as
// network cards do with interrupts. How long, it learns: a few super-packets should be
// there when it looks, and never so many that credit runs out.
type linger struct {
	pause  time.Duration
	before uint64 // datagrams that were placed when we looked last
	few    uint64 // fewer than that at a time, and it may wait longer
	many   uint64 // more, and it must not wait so long
}

const (
	lingerFirst = 50 * time.Microsecond
	lingerMost  = 4 * time.Millisecond
)

// newLinger makes one for super-packets of batch chunks and a queue of room.
func newLinger(batch, room int) linger {
	many := uint64(min(8*batch, max(1, room/8)))
	return linger{few: many / 2, many: many}
}

// next says how long to wait before looking again, after placed chunks in all, with
// missing still to come.
func (l *linger) next(placed uint64, missing uint32) time.Duration {
	got := placed - l.before
	l.before = placed
	switch {
	case uint64(missing) < 2*l.many || got == 0:
		return 0 // near the end, or nothing comes: be there when it does
	case got < l.few:
		l.pause = min(max(lingerFirst, 2*l.pause), lingerMost)
	case got > l.many:
		l.pause /= 2
	}
	return l.pause
}
