package node

import (
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// isEagerMulticast reports whether a multicast call is eager (mcast.Eager). All ranks agree: it depends on
// the call and on what all members know of the communicator. The datagrams of a communicator without groups
// of its own also reach ranks whose room its window does not count.
func (n *Node) isEagerMulticast(c *comm, plan []*mcast.Geometry) bool {
	return n.cfg.EagerChunks > 0 && !c.shared && plan[0].Eager()
}

// eagerWindow returns the window of a communicator's eager multicasts.
func (c *comm) eagerWindow() *mcast.Window {
	if c.window == nil {
		c.window = mcast.NewWindow(c.id, c.rank, len(c.members))
	}
	return c.window
}

// handleWindow handles a message about the eager calls of a communicator.
func (n *Node) handleWindow(now step.Time, c *comm, from int, m *wire.Msg) {
	if c.broken != nil {
		n.send(c.members[from], c.broken.message(c.id))
		return
	}
	if n.cfg.EagerChunks == 0 || len(c.members) < 2 {
		n.stats.Stale++
		return
	}
	n.executeWindow(now, c, c.eagerWindow().Handle(from, m, n.steps[:0]))
	n.checkAsked(c)
}

// executeWindow turns the actions of a window into actions of the node. If the window has moved, eager calls
// may proceed or close.
func (n *Node) executeWindow(now step.Time, c *comm, acts []step.Action) {
	n.steps = nil
	for i := range acts {
		switch a := &acts[i]; a.Kind {
		case step.ActSend:
			n.send(c.members[a.To], &a.Msg)
		case step.ActMismatch:
			n.breakMismatched(c, a.To, a.Msg.Seq, a.Msg.Call, c.calledAt(a.Msg.Seq))
		}
	}
	n.steps = acts[:0]
	n.moveWindow(now, c)
}

// moveWindow lets eager calls proceed or close after the window has moved.
func (n *Node) moveWindow(now step.Time, c *comm) {
	for c.broken == nil && c.window != nil && c.window.All() > c.passed {
		c.passed = c.window.All()
		for _, st := range c.running() {
			if st.eg != nil && st.opened {
				n.execute(c, st, st.eg.Step(now, step.Event{Kind: step.EvTimer}, n.steps[:0]))
			}
		}
	}
}

// checkAsked breaks the communicator if a peer waits for an eager call that this rank made differently.
func (n *Node) checkAsked(c *comm) {
	if c.window == nil || c.broken != nil {
		return
	}
	if from, ask, ours := c.window.Asked(c.nextSeq); ask != nil {
		if ours.Kind == 0 {
			ours = c.calledAt(ask.Seq)
		}
		n.breakMismatched(c, from, ask.Seq, ask.Call, ours)
	}
}

// freeSlots asks for the progress of all ranks before calls run out of slots, which eager calls hold until
// all ranks have finished them.
func (n *Node) freeSlots(now step.Time, c *comm) {
	if c.window == nil || c.broken != nil {
		return
	}
	if seq, ok := c.window.Oldest(); ok && c.nextSeq-seq >= c.layout.Slots()/2 {
		n.executeWindow(now, c, c.window.AwaitAll(n.steps[:0]))
	}
}
