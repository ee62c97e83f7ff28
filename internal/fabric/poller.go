package fabric

import "time"

// A Poller serves the sockets of a network from one goroutine at a time. A goroutine that waits for
// an operation leads, so that the event it waits for does not have to wake another goroutine. One
// in the background serves the sockets while there is no leader.
type Poller interface {
	// Lead makes the caller the leader, unless there is one.
	Lead() bool
	// Poll serves the sockets that are ready. If none is, it blocks until one is, until Kick, or for
	// the time of wait; a negative wait has no limit. It reports whether a socket was ready. Only the
	// leader calls it.
	Poll(wait time.Duration) bool
	// Gather lets datagrams gather for d: it blocks as Poll does, but datagrams do not end it. Only the
	// leader calls it.
	Gather(d time.Duration)
	// Yield ends the leadership.
	Yield()
	// Rest asks the background to let datagrams gather for d before it polls again, or for less if
	// another call since the last poll asks for less. Functions that Poll calls may call it.
	Rest(d time.Duration)
	// Kick makes a blocked Poll return. Any goroutine may call it.
	Kick()
	// Close ends the background's work. Afterwards, Lead returns false.
	Close() error
}

// An FDPoller is a poller that can watch any file descriptor.
type FDPoller interface {
	// Watch makes the poller call ready when the descriptor is readable, and after wake. The
	// descriptor stays open until the poller is closed.
	Watch(fd int, ready func()) (wake func(), err error)
}
