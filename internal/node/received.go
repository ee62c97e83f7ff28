package node

import (
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/step"
)

// Received handles a report of a receive worker: chunks that it has placed, each reported once, and
// datagrams that placed nothing. Late datagrams mean that the cutoff of their communicator was too
// early. Offloaded means that the kernel took the datagrams, not the worker.
func (n *Node) Received(now step.Time, r *mcast.Report, offloaded bool) {
	for i := range r.Runs {
		run := &r.Runs[i]
		c := n.comms[run.Comm]
		if c == nil {
			n.stats.Stale += uint64(run.N)
			continue
		}
		st := c.find(run.Seq)
		if st == nil || !st.multicasts() {
			n.stats.Stale += uint64(run.N)
			continue
		}
		var steps []step.Action
		if st.eg != nil {
			steps = st.eg.Placed(now, run.Range, n.steps[:0])
		} else {
			steps = st.mc.Placed(now, run.Stream, run.Range, n.steps[:0])
		}
		if len(steps) > 0 {
			n.execute(c, st, steps)
			n.moveWindow(now, c)
		}
	}
	pool := n.pool
	if offloaded {
		pool = n.offloadPool
	}
	pool.Took(now)
	i := &r.Ignored
	n.stats.Duplicates += i.Duplicates
	n.stats.Late += i.Late
	n.stats.Foreign += i.Foreign
	n.stats.Stale += i.Stale
	if c := n.comms[r.Comm]; c != nil && i.Late > 0 {
		c.est.Late(now)
	}
}

// Lull returns the lull of the only operation in flight. There is none with several operations. During a
// lull the driver may report chunks late: see mcast.Lull.
func (n *Node) Lull() mcast.Lull {
	var only *round
	for _, c := range n.order {
		for _, st := range c.live {
			if only != nil {
				return mcast.Lull{}
			}
			only = st
		}
	}
	if only == nil || only.mc == nil {
		return mcast.Lull{}
	}
	return only.mc.Lull()
}

// Foreign adds the number of pieces that the Inbox of a point-to-point operation rejected. The driver
// calls it once the operation has completed or failed.
func (n *Node) Foreign(pieces uint64) { n.stats.Foreign += pieces }

// Queued reports that datagrams wait in the receive queues. Missing chunks may be among them and do
// not count as lost yet.
func (n *Node) Queued(now step.Time) {
	for _, c := range n.order {
		for _, st := range c.live {
			switch {
			case st.mc != nil:
				st.mc.Queued(now)
			case st.eg != nil:
				st.eg.Queued(now)
			}
		}
	}
}

// Heard reports that a peer was alive at a time, possibly in the past: data arrived from it that is not
// for the node, or not yet.
func (n *Node) Heard(at step.Time, from int) { n.live.recordSign(at, from) }
