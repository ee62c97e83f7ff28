package control

import (
	"context"
	"runtime"
	"time"

	"github.com/allcast/allcast/internal/engine/datapath"
)

// A waiting goroutine polls for a moment before it sleeps, since waking takes longer than most answers. It
// adapts that moment: twice as long after a success or a sleep that polling would have avoided, half as long
// after a longer sleep.
const (
	minSpin = 20 * time.Microsecond
	maxSpin = time.Millisecond
	// yieldAfter is the number of polls in vain after which other goroutines have their turn.
	yieldAfter = 8
)

// Wait waits until the call or ctx has ended.
func (r *Request) Wait(ctx context.Context) {
	c := r.c
	if p := c.poller; p != nil && !r.over.Load() && p.Lead() {
		c.data.Polling.SetLeader(datapath.LeaderPolls)
		c.lead(ctx, r)
		c.data.Polling.SetLeader(datapath.NoLeader)
		p.Yield()
	}
	if r.over.Load() {
		return
	}
	select {
	case <-r.Done():
	case <-ctx.Done():
	}
}

// lead polls the network until the call or ctx has ended, or until polling is not worth it.
func (c *Control) lead(ctx context.Context, r *Request) {
	p := c.poller
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, p.Kick)
		defer stop()
	}
	ended := func() bool { return r.over.Load() || ctx.Err() != nil }
	alone, idlePolls := c.data.Polling.Alone, 0
	for since := time.Now(); !ended(); {
		c.tick()
		polled := p.Poll(0)
		if c.data.Polling.Serve() || polled {
			if now := time.Now(); now.Sub(since) > minSpin {
				c.spin = min(2*c.spin, maxSpin)
				since = now
			}
			continue
		}
		if idlePolls++; alone && idlePolls%yieldAfter == 0 {
			// Other goroutines may hold the awaited event, and no other thread runs them. With more
			// processors, this would only wake a thread to run this goroutine instead.
			runtime.Gosched()
		}
		if c.data.Polling.Bulk() {
			return // for long: Go's poller waits at a lower cost, and wakes the background goroutine
		}
		if !c.data.Much() && time.Since(since) < c.spin {
			c.data.Polling.Relax()
			continue
		}
		c.data.Polling.SetLeader(datapath.LeaderSleeps)
		slept := time.Now()
		if !ended() {
			c.sleep()
		}
		c.data.Polling.SetLeader(datapath.LeaderPolls)
		if since = time.Now(); ctx.Err() != nil {
			break // nothing came: see below
		} else if since.Sub(slept) < maxSpin {
			c.spin = min(2*c.spin, maxSpin) // a longer poll would have succeeded
		} else {
			c.spin = max(c.spin/2, minSpin)
		}
	}
	if !r.over.Load() {
		c.spin = max(c.spin/2, minSpin) // callers that wait in short turns must not poll all the time
	}
}

// sleep blocks until the next event. It lets datagrams gather while much of an operation is missing.
func (c *Control) sleep() {
	due, pause := c.untilTick(), c.data.Linger()
	switch {
	case pause == 0:
		c.poller.Poll(due)
	case due < 0:
		c.poller.Gather(pause)
	default:
		c.poller.Gather(min(pause, due))
	}
}
