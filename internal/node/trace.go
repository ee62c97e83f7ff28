package node

import (
	"cmp"
	"slices"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// States of a rank in its answer to MsgProbeWait.
const (
	notCalled uint8 = iota // the rank has not made this call
	waiting                // the rank waits for Msg.Rank (a rank of the communicator)
	busy                   // the rank waits for no other rank
	complete               // the rank has completed the call
	gone                   // the rank has closed the communicator: it has sent all that it ever sends
)

// trace is the search for the rank that an overdue call waits for.
type trace struct {
	call     *call
	target   int // rank of the communicator that was asked
	hops     int
	ticks    int // checks for an answer since then
	tickAt   step.Time
	interval step.Time
}

// probeChecks is the number of checks for an answer, at equal parts of the timeout. A single check at
// the end is not enough: if this process was stopped meanwhile, the answer may still be unread.
const probeChecks = 4

// SetDeadline limits the time of a call that has started, in addition to Config.Deadline. Ranks may have
// different deadlines for the same call. A collective that passes its deadline breaks its communicator, and
// so does a Send or a Recv that has a match. Without a match, only the Send or the Recv ends (Unmatched).
func (n *Node) SetDeadline(comm uint32, req uint64, at step.Time) {
	c := n.comms[comm]
	if c == nil {
		return
	}
	for _, list := range []*calls{&c.calls, &c.mail.calls} {
		// The call is most likely the last one.
		for _, k := range slices.Backward(list.all) {
			if k.req == req {
				k.deadline = min(k.deadline, at)
				list.earliest = min(list.earliest, at)
				return
			}
		}
	}
}

// calls are unfinished calls of a communicator.
type calls struct {
	all      []*call   // oldest first
	earliest step.Time // lower bound of their deadlines: calls that have ended may have had an earlier one
}

func (l *calls) add(k *call) {
	if len(l.all) == 0 {
		l.earliest = step.Never
	}
	l.earliest = min(l.earliest, k.deadline)
	l.all = append(l.all, k)
}

func (l *calls) remove(k *call) {
	if i := slices.Index(l.all, k); i >= 0 {
		l.all = slices.Delete(l.all, i, i+1)
	}
}

// oldest returns the oldest call, or nil.
func (l *calls) oldest() *call {
	if len(l.all) == 0 {
		return nil
	}
	return l.all[0]
}

// deadlineAt returns a time before which no call is overdue.
func (l *calls) deadlineAt() step.Time {
	if len(l.all) == 0 {
		return step.Never
	}
	return l.earliest
}

// overdue returns the oldest call that has passed its deadline, or nil.
func (l *calls) overdue(now step.Time) (first *call) {
	if now < l.deadlineAt() {
		return nil
	}
	l.earliest = step.Never
	for _, k := range l.all {
		if first == nil && k.deadline <= now {
			first = k
		}
		l.earliest = min(l.earliest, k.deadline)
	}
	return first
}

// deadlineTimer returns the time of the next checkDeadline.
func (c *comm) deadlineTimer() step.Time {
	at := c.calls.deadlineAt()
	if t := c.trace; t != nil {
		at = t.tickAt + t.interval
	}
	return min(at, c.mail.calls.deadlineAt())
}

// checkDeadline starts a search when a collective is overdue, and ends a search without an answer. It gives
// up overdue messages.
func (n *Node) checkDeadline(now step.Time, c *comm) {
	if c.broken != nil {
		return
	}
	for k := c.mail.calls.overdue(now); k != nil && c.broken == nil; k = c.mail.calls.overdue(now) {
		k.deadline = step.Never // the call ends soon
		n.expireMail(c, k)
	}
	if t := c.trace; t != nil && c.broken == nil {
		if now < t.tickAt+t.interval {
			return
		}
		t.tickAt = now
		if t.ticks++; t.ticks >= probeChecks {
			// All ranks wait for the target, and it does not answer.
			n.breakAndNotify(c, verdict{culprit: c.members[t.target], reason: Deadline, seq: t.call.next()}, -1)
		}
		return
	}
	k := c.calls.overdue(now)
	if k == nil || c.broken != nil {
		return
	}
	// Timeout decides about silence, however short the deadline is.
	interval := max(cmp.Or(n.cfg.Timeout, k.deadline-k.startAt)/probeChecks, 1)
	if !k.running {
		k = c.blocker(k)
	}
	c.trace = &trace{call: k, interval: interval}
	n.probe(now, c, k, c.waitingOn(k))
}

// blocker returns the call that a queued call waits for: a reduction waits for the reductions before it, and other
// calls for the oldest call.
func (c *comm) blocker(k *call) *call {
	if c.waitsForTurn(k) {
		for _, x := range c.calls.all {
			if x.reduces() && x.running {
				return x
			}
		}
	}
	return c.calls.oldest()
}

// waitingOn returns the rank that a call waits for, or this rank if it waits for no other.
func (c *comm) waitingOn(k *call) int {
	if k != nil && k.running {
		return c.find(k.next()).op.WaitingOn()
	}
	return c.rank
}

// probe continues the search at target.
func (n *Node) probe(now step.Time, c *comm, k *call, target int) {
	t := c.trace
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
	case m.Seq >= c.nextSeq && c.removed:
		a.State = gone
	case m.Seq >= c.nextSeq:
		a.State = notCalled
		if w := c.waitingOn(c.calls.oldest()); w != c.rank {
			a.State, a.Rank = waiting, uint32(w) // the caller may be blocked in an earlier call
		}
	case int64(m.Seq) > c.lastSeq[c.layout.Slot(m.Seq)]: // called, but not its turn yet
		a.State, a.Rank = waiting, uint32(c.waitingOn(c.calls.oldest()))
	}
	if a.State == waiting && int(a.Rank) == c.rank {
		a.State = busy
	}
	n.send(from, &a)
}

// handleWaitState continues the search after an answer.
func (n *Node) handleWaitState(now step.Time, c *comm, from int, m *wire.Msg) {
	if m.State == gone {
		n.handleGone(c, from, m)
		return
	}
	t := c.trace
	if c.broken != nil || t == nil || t.call.next() != m.Seq || c.members[t.target] != from {
		return
	}
	k := t.call
	switch {
	case m.State == waiting && int(m.Rank) < len(c.members):
		n.probe(now, c, k, int(m.Rank))
	case m.State == notCalled:
		n.breakAndNotify(c, verdict{culprit: from, reason: Deadline, seq: m.Seq}, -1)
	default: // the target works on the call or has completed it: no rank failed, the deadline was too short
		n.breakAndNotify(c, verdict{culprit: NoRank, reason: Deadline, seq: m.Seq}, -1)
	}
}
