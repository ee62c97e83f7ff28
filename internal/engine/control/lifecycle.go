package control

import (
	"context"
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
	select {
	case <-r.Done():
		if r.Err() != nil {
			c.leaveSurvivors(ctx, leaving)
		}
	case <-leaving:
	case <-ctx.Done():
	}
}

// leaveSurvivors waits until all live ranks want to leave. It is for a job that has lost ranks, where a
// barrier of all ranks cannot end.
func (c *Control) leaveSurvivors(ctx context.Context, leaving <-chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = c.Agree(ctx, Lifecycle, 0) // how it ends does not matter
	}()
	select {
	case <-done:
	case <-leaving:
	case <-ctx.Done():
	}
}

// Close ends the engine. Calls that have not ended fail with ErrClosed, once nothing touches their
// buffers any more. A second Close does nothing but wait for the first.
func (c *Control) Close() error {
	c.closeOnce.Do(c.close)
	return nil
}

func (c *Control) close() {
	c.comms.mu.Lock()
	c.state.Store(int32(closing))
	var comms []uint32
	for id := range c.comms.groups {
		comms = append(comms, id)
	}
	c.comms.mu.Unlock()
	// No call begins any more. Calls under way are broken, here and on other ranks.
	idle := make(chan struct{})
	c.do(func() {
		if len(c.calls) == 0 {
			close(idle)
			return
		}
		for _, id := range comms {
			_ = c.node.Abort(id) // it exists
		}
		c.act()
		c.whenIdle = func() { close(idle) }
		c.checkIdle()
	})
	c.data.Interrupt()
	<-idle
	c.data.Close()
	c.do(func() {
		c.state.Store(int32(stopped))
		c.clock.timer.Stop()
		close(c.over)
	})
}
