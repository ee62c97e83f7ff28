package control

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/allcast/allcast/internal/wire"
)

// Leave waits until all ranks want to leave, by a barrier on the lifecycle communicator, until another
// rank has left, or until the limit. Then it is time to Close.
func (c *Control) Leave(limit time.Duration, barrier string) {
	leaving := make(chan struct{})
	if !c.do(func() { c.leaving = leaving }) {
		return
	}
	r, err := c.Start(Lifecycle, Call{Kind: wire.Barrier, Algo: barrier})
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-r.Done():
		case <-ctx.Done():
		}
		if r.Err() != nil && ctx.Err() == nil {
			// In a job that has lost ranks, a barrier of all ranks cannot end. The live ranks agree that they
			// want to leave instead; how the agreement ends does not matter.
			_, _ = c.Agree(ctx, Lifecycle, 0)
		}
	}()
	select {
	case <-done:
	case <-leaving:
	case <-ctx.Done():
	}
}

// Close ends the engine. Calls that have not ended fail with ErrClosed, once nothing touches their
// buffers any more. All requests have ended when Close returns. A second Close does nothing but wait for the first.
func (c *Control) Close() error {
	c.closeOnce.Do(c.close)
	return nil
}

func (c *Control) close() {
	c.comms.mu.Lock()
	c.state.Store(int32(closing))
	comms := slices.Collect(maps.Keys(c.comms.groups))
	c.comms.mu.Unlock()
	// No call begins any more. Calls under way are broken, here and on other ranks.
	idle := make(chan struct{})
	c.do(func() {
		if len(c.calls) == 0 {
			close(idle)
			return
		}
		for _, id := range comms {
			_ = c.node.Leave(id) // it exists
		}
		c.act()
		c.whenIdle = func() { close(idle) }
		c.checkIdle()
	})
	c.data.Interrupt()
	<-idle
	c.reports.Wait() // so that no request ends after Close
	c.data.Close()
	c.do(func() {
		c.state.Store(int32(stopped))
		c.clock.timer.Stop()
		close(c.over)
	})
}
