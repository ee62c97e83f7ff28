package control

import (
	"context"
	"strconv"

	"github.com/allcast/allcast/internal/node"
)

// agreement is an agreement under way.
type agreement struct {
	done   chan struct{}
	result *node.Agreed
}

// Agree lets the live members of a communicator agree on who they are, even on a broken communicator.
// All of them call it. If id is not 0, a communicator of them exists afterwards, under an id that one of
// them gave: no two ranks ever give the same. When ctx ends, the agreement no longer waits for live
// ranks that have not called; the result is still the same on all ranks.
func (c *Control) Agree(ctx context.Context, comm, id uint32) (*node.Agreed, error) {
	a := &agreement{done: make(chan struct{})}
	var req uint64
	err := c.try(func() error {
		if !c.is(running) && comm != Lifecycle {
			return ErrClosed
		}
		c.lastReq++
		req = c.lastReq
		c.agreements[req] = a
		err := c.node.Agree(c.now(), comm, req, id)
		if err != nil {
			delete(c.agreements, req)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for hurry := ctx.Done(); ; {
		select {
		case <-a.done:
			return a.result, nil
		case <-c.over:
			return nil, ErrClosed
		case <-hurry:
			hurry = nil
			c.do(func() { c.node.Hurry(c.now(), comm, req); c.act() })
		}
	}
}

// agreed ends an agreement. The new communicator exists before any message for it is handled.
func (c *Control) agreed(a *node.Action) {
	w := c.agreements[a.Req]
	delete(c.agreements, a.Req)
	if g := a.Agreed; g.ID != 0 {
		name := strconv.FormatUint(uint64(g.ID), 10) // no other communicator of the job ever has this id
		c.register(g.ID, name, g.Members)
		c.joinLater(g.ID, name)
	}
	w.result = a.Agreed
	if a.Agreed.Members == nil && c.is(running) {
		// The caller may exit because of the result: the verdict leaves first.
		go func() {
			c.rel.Flush(flushLimit)
			close(w.done)
		}()
		return
	}
	close(w.done)
}
