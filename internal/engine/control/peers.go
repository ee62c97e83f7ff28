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
	*datapath.Datapath
	*upcalls
}

// upcalls is Control as the reliable side of the network and the datapath see it.
type upcalls Control

// Message implements fabric.Handler.
func (u *upcalls) Message(from int, msg []byte) {
	m, err := wire.ParseMsg(msg)
	if err != nil {
		u.Lost(from, fmt.Errorf("protocol violation: %w", err))
		return
	}
	c := (*Control)(u)
	t := c.newTask(taskMessage)
	t.Value.peer, t.Value.msg = from, m
	c.push(t)
}

// Lost implements fabric.Handler.
func (u *upcalls) Lost(peer int, err error) {
	u.Report(datapath.Event{Kind: datapath.PeerLost, Peer: peer, Err: err})
}

// Report implements datapath.Sink.
func (u *upcalls) Report(ev datapath.Event) {
	c := (*Control)(u)
	t := c.newTask(taskReport)
	t.Value.event = ev
	c.push(t)
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
	if peer == c.cfg.Rank {
		c.fault = err
	}
	c.obs.TraceLost(peer, goodbye, err, !c.is(running))
	c.node.PeerLost(now, peer)
}

// hear tells the node of ranks that data came from.
func (c *Control) hear() {
	for rank := range c.cfg.Size {
		if at := c.data.HeardAt(rank); at > 0 {
			c.node.Heard(at, rank)
			c.obs.TraceHeard(rank, at)
		}
	}
}
