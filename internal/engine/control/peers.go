package control

import (
	"errors"
	"fmt"

	"github.com/allcast/allcast/internal/engine/datapath"
	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// handler is a fabric.Handler: the datapath takes the data, control the messages.
type handler struct {
	*datapath.Incoming
	*messages
}

// messages is Control as the reliable side of the network sees it.
type messages Control

// Message implements fabric.Handler.
func (h *messages) Message(from int, msg []byte) {
	m, err := wire.ParseMsg(msg)
	if err != nil {
		h.Lost(from, fmt.Errorf("it sent what no correct peer sends: %w", err))
		return
	}
	t := newTask(taskMessage)
	t.Value.peer, t.Value.msg = from, m
	(*Control)(h).push(t)
}

// Lost implements fabric.Handler.
func (h *messages) Lost(peer int, err error) {
	t := newTask(taskLost)
	t.Value.peer, t.Value.err = peer, err
	(*Control)(h).push(t)
}

// lost gives a peer up.
func (c *Control) lost(now step.Time, peer int, err error) {
	goodbye := errors.Is(err, fabric.ErrGoodbye)
	if goodbye && c.leaving != nil {
		// The peer has heard from all ranks that they leave, or waits no longer. Neither does this one.
		select {
		case <-c.leaving:
		default:
			close(c.leaving)
		}
		return
	}
	c.obs.TraceLost(peer, goodbye, err, !c.is(running))
	c.node.PeerLost(now, peer)
}

// hear tells the node of ranks that data came from.
func (c *Control) hear() {
	for rank := range c.heardAt {
		if at := c.data.HeardAt(rank); at > c.heardAt[rank] {
			c.heardAt[rank] = at
			c.node.Heard(at, rank)
			c.obs.TraceHeard(rank, at)
		}
	}
}
