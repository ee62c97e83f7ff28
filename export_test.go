package allcast

// Vanish ends this rank as if its process had died.
func (c *Comm) Vanish() {
	c.closed.Store(true)
	_ = c.job.Close()
	c.job.server.Close()
}

// Comms returns the number of communicators that use memory in this process.
func (c *Comm) Comms() int { return c.job.Comms() }

// ExportError converts an error of the engine for callers.
var ExportError = exportError

// OfCall converts an error of a communicator that a call tried to create.
var OfCall = (*RankError).ofCall
