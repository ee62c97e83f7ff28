package allcast

import (
	"context"

	"github.com/allcast/allcast/internal/world"
)

// Hooks let a test pass rank 0 a socket that listens already, which gives it a free port without a race.
// Watch lets a test see the phases of operations as they begin, and act on them; the rank does nothing
// else meanwhile.
type Hooks = world.Hooks

// JoinHooked is Join with hooks.
func JoinHooked(ctx context.Context, o Options, h Hooks) (*Comm, error) { return join(ctx, o, h) }

// Vanish ends this rank as if its process had ended.
func (c *Comm) Vanish() {
	c.closed.Store(true)
	_ = c.job.Close()
	c.job.server.Close()
}

// Comms returns the number of communicators that take up memory in this process.
func (c *Comm) Comms() int { return c.job.Comms() }

// Public turns an error of the engine into the one that callers get.
var Public = exportError
