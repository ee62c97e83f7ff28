package node

import (
	"cmp"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// States of a rank in its answer to MsgProbeWait.
const (
	notCalled uint8 = iota // the rank has not made this call
	waiting                // the rank waits for Msg.Rank (a rank of the communicator)
	busy                   // the rank waits for no other rank
	complete               // the rank has completed the call
)

// trace is the search for the rank that an overdue call waits for.
type trace struct {
	target   int // rank of the communicator that was asked
	hops     int
	ticks    int // checks for an answer since then
	tickAt   step.Time
	interval step.Time
}

// probeChecks is the number of checks for an answer, at equal parts of the timeout. A single check at
// the end is not enough: if this process was stopped meanwhile, the answer may still be unread.
const probeChecks = 4

func (k *call) deadlineAt(deadline step.Time) step.Time {
	if k.trace != nil {
		return k.trace.tickAt + k.trace.interval
	}
	return k.startAt + deadline
}

// checkDeadline starts a search when the oldest call is overdue, and ends a search without an answer.
// It ignores later calls, which may be waiting for the oldest.
func (n *Node) checkDeadline(now step.Time, c *comm) {
	if n.cfg.Deadline <= 0 || len(c.calls) == 0 || c.broken != nil {
		return
	}
	k := c.calls[0]
	switch {
	case now < k.deadlineAt(n.cfg.Deadline):
	case k.trace != nil:
		k.trace.tickAt = now
		if k.trace.ticks++; k.trace.ticks >= probeChecks {
			// All ranks wait for the target, and it does not answer.
			n.breakAndNotify(c, verdict{culprit: c.members[k.trace.target], reason: Deadline, seq: k.next()}, -1)
		}
	default:
		// Timeout decides about silence, however short the deadline is.
		k.trace = &trace{interval: max(cmp.Or(n.cfg.Timeout, n.cfg.Deadline)/probeChecks, 1)}
		n.probe(now, c, k, c.waitingOn())
	}
}

// waitingOn returns the rank that the oldest call waits for, or this rank if it waits for no other.
func (c *comm) waitingOn() int {
	if len(c.calls) > 0 && c.calls[0].running {
		return c.find(c.calls[0].next()).op.WaitingOn()
	}
	return c.rank
}

// probe continues the search at target.
func (n *Node) probe(now step.Time, c *comm, k *call, target int) {
	t := k.trace
	if t.hops++; target == c.rank || t.hops > 2*len(c.members) {
		// This rank itself holds up the call, or the state changed during the search.
		n.breakAndNotify(c, verdict{culprit: NoRank, reason: Deadline, seq: k.next()}, -1)
		return
	}
	t.target, t.tickAt, t.ticks = target, now, 0
	n.send(c.members[target], &wire.Msg{Kind: wire.MsgProbeWait, Comm: c.id, Seq: k.next()})
}

// answerProbe tells a peer which rank this rank waits for.
func (n *Node) answerProbe(c *comm, from int, m *wire.Msg) {
	if c.broken != nil {
		n.send(from, c.broken.message(c.id))
		return
	}
	if _, isMail := wire.MailSender(m.Seq); isMail {
		return // the peer waits for a message: see probeSenders
	}
	a := wire.Msg{Kind: wire.MsgWaitState, Comm: c.id, Seq: m.Seq, State: complete}
	st := c.find(m.Seq)
	switch {
	case st != nil && st.done:
	case st != nil:
		a.State, a.Rank = waiting, uint32(st.op.WaitingOn())
	case m.Seq >= c.nextSeq:
		a.State = notCalled
	case int64(m.Seq) > c.lastSeq[c.layout.Slot(m.Seq)]: // called, but not its turn yet
		a.State, a.Rank = waiting, uint32(c.waitingOn())
	}
	if a.State == waiting && int(a.Rank) == c.rank {
		a.State = busy
	}
	n.send(from, &a)
}

// handleWaitState continues the search after an answer.
func (n *Node) handleWaitState(now step.Time, c *comm, from int, m *wire.Msg) {
	if c.broken != nil || len(c.calls) == 0 {
		return
	}
	k := c.calls[0]
	if k.trace == nil || k.next() != m.Seq || c.members[k.trace.target] != from {
		return
	}
	switch {
	case m.State == waiting && int(m.Rank) < len(c.members):
		n.probe(now, c, k, int(m.Rank))
	case m.State == notCalled:
		n.breakAndNotify(c, verdict{culprit: from, reason: Deadline, seq: m.Seq}, -1)
	default: // the target works on the call or has completed it: no rank failed, the deadline was too short
		n.breakAndNotify(c, verdict{culprit: NoRank, reason: Deadline, seq: m.Seq}, -1)
	}
}
