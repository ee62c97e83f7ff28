package allcast

import "net"

// On lets rank 0 listen on a socket that is there already: a free port without a
// race.
func (o Options) On(l net.Listener) Options {
	o.listener = l
	return o
}

// Vanish ends this rank as if its process had ended.
func (c *Comm) Vanish() {
	c.closed.Store(true)
	_ = c.job.Close()
	c.job.server.Close()
}

// Comms is how many communicators take up memory in this process.
func (c *Comm) Comms() int { return c.job.Comms() }

// Watched lets a test see the phases of operations as they begin, and act on them: nothing
// else happens in this rank's control side meanwhile.
func (o Options) Watched(f func(comm uint32, seq uint64, what string)) Options {
	o.watch = f
	return o
}

// Public is what callers get for an error of the engine.
var Public = exportError
