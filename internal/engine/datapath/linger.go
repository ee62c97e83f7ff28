package datapath

import "time"

// linger is how long a receive worker lets datagrams gather. A wake-up costs more than a super-packet,
// so a thread that slept until each one came would spend most of its time waking. While much of an
// operation is still missing, a worker that found its queue empty pauses before it looks again, as
// network cards do with interrupts. The worker adapts the pause: a few super-packets should be there
// when it looks, and never so many that credit runs out.
type linger struct {
	pause  time.Duration
	before uint64 // datagrams placed when the worker looked last
	few    uint64 // datagrams per look below which the pause grows
	many   uint64 // datagrams per look above which the pause shrinks
}

// Linger is how long a leader that is about to sleep lets datagrams gather; 0: each may matter.
func (d *Datapath) Linger() time.Duration {
	placed, missing := d.shared()
	return d.linger.next(placed, missing)
}

// Much reports whether so many chunks are missing that the leader need not watch for each.
func (d *Datapath) Much() bool {
	_, missing := d.shared()
	return missing > 0 && d.linger.much(missing)
}

// shared counts the chunks that the leader's workers have placed, and those that they still miss. The leader runs
// these workers, and no other goroutine does.
func (d *Datapath) shared() (placed uint64, missing uint32) {
	for _, w := range d.recvs {
		if w.shares() {
			placed += w.placed.Load()
			missing += w.missing()
		}
	}
	return placed, missing
}

const (
	minLinger = 50 * time.Microsecond
	maxLinger = 4 * time.Millisecond
)

// newLinger returns the linger for super-packets of batch chunks and a queue of room chunks.
func newLinger(batch, room int) linger {
	many := uint64(min(8*batch, max(1, room/8)))
	return linger{few: many / 2, many: many}
}

// next is how long to pause before the next look, after placed chunks in total.
func (l *linger) next(placed uint64, missing uint32) time.Duration {
	got := placed - l.before
	l.before = placed
	switch {
	case !l.much(missing) || got == 0:
		return 0 // near the end, or nothing comes: do not delay the next chunk
	case got < l.few:
		l.pause = min(max(minLinger, 2*l.pause), maxLinger)
	case got > l.many:
		l.pause /= 2
	}
	return l.pause
}

// much reports whether so many chunks are missing that a worker may pause.
func (l *linger) much(missing uint32) bool { return uint64(missing) >= 2*l.many }
