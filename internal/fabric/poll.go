package fabric

import "time"

// A Poller serves the sockets of a fabric from one goroutine at a time: from the one
// that waits for an operation, so that what it waits for wakes nobody else, and from
// one in the background when nobody waits.
type Poller interface {
	// Lead makes the caller the one that serves the sockets, unless another one is.
	Lead() bool
	// Poll serves what is there. If there is nothing, it waits for something, or for
	// Kick, for so long; without end if wait is negative. It reports whether there
	// was something. Only who leads calls it.
	Poll(wait time.Duration) bool
	// Yield ends what Lead began.
	Yield()
	// Rest asks the background to let something gather for so long before it looks again.
	// Who is called by Poll calls it.
	Rest(d time.Duration)
	// Kick makes a Poll that waits return. Any goroutine may call it.
	Kick()
	// Close ends the background's part. Nobody may lead any more.
	Close() error
}

// Polled is a Receiver that a Poller can serve.
type Polled interface {
	// Attach makes the poller call the sink, instead of Receive; err is called when the
	// network failed, each time that it did, and Idle not then. It says whether it can be
	// done.
	Attach(p Poller, s Sink, err func(error)) bool
}
