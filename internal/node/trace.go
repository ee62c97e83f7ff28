package node

import (
	"cmp"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// States that a rank can answer MsgWhy with.
const (
	notCalled uint8 = iota // it has not made this call
	waiting                // it waits for Msg.Rank (a rank of the communicator)
	busy                   // it waits for nobody
	complete               // it has completed the call
)

// trace is the search for the rank that a late call waits for.
type trace struct {
	target int // whom we asked, a rank of the communicator
	hops   int
	ticks  int // how often we looked for an answer since
	tickAt step.Time
	every  step.Time
}

// looks is how often we look for an answer, in equal parts of the timeout. To
// look only once, at its end, would not do: had we been stopped ourselves
// meanwhile, the answer might be among what we have not read.
const looks = 4

func (k *call) deadlineAt(deadline step.Time) step.Time {
	if k.trace != nil {
		return k.trace.tickAt + k.trace.every
	}
	return k.startAt + deadline
}

// checkDeadline starts a search when the oldest call took too long, and ends one
// that gets no answer. Later calls may well be waiting for the oldest.
func (n *Node) checkDeadline(now step.Time, c *comm) {
	if n.cfg.Deadline <= 0 || len(c.calls) == 0 || c.broken != nil {
		return
	}
	k := c.calls[0]
	switch {
	case now < k.deadlineAt(n.cfg.Deadline):
	case k.trace != nil:
		k.trace.tickAt = now
		if k.trace.ticks++; k.trace.ticks >= looks {
			// Everybody waits for it, and it does not even say why.
			n.breakBy(c, verdict{culprit: c.members[k.trace.target], reason: Deadline, seq: k.next()}, -1)
		}
	default:
		// Silence is judged by Timeout, however short the deadline is.
		k.trace = &trace{every: max(cmp.Or(n.cfg.Timeout, n.cfg.Deadline)/looks, 1)}
		n.ask(now, c, k, c.waitingOn())
	}
}

// waitingOn is the rank that our oldest call waits for; ourselves if it waits
// for nobody.
func (c *comm) waitingOn() int {
	if len(c.calls) > 0 && c.calls[0].running {
		return c.find(c.calls[0].next()).op.WaitingOn()
	}
	return c.rank
}

// ask goes on with the search at target.
func (n *Node) ask(now step.Time, c *comm, k *call, target int) {
	t := k.trace
	if t.hops++; target == c.rank || t.hops > 2*len(c.members) {
		// We are at it ourselves, or things moved while we asked.
		n.breakBy(c, verdict{culprit: NoRank, reason: Deadline, seq: k.next()}, -1)
		return
	}
	t.target, t.tickAt, t.ticks = target, now, 0
	n.send(c.members[target], &wire.Msg{Kind: wire.MsgProbeWait, Comm: c.id, Seq: k.next()})
}

// explain answers what we wait for.
func (n *Node) explain(c *comm, from int, m *wire.Msg) {
	if c.broken != nil {
		n.send(from, c.broken.message(c.id))
		return
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

// traced goes on with the search after an answer.
func (n *Node) traced(now step.Time, c *comm, from int, m *wire.Msg) {
	if c.broken != nil || len(c.calls) == 0 {
		return
	}
	k := c.calls[0]
	if k.trace == nil || k.next() != m.Seq || c.members[k.trace.target] != from {
		return
	}
	switch {
	case m.State == waiting && int(m.Rank) < len(c.members):
		n.ask(now, c, k, int(m.Rank))
	case m.State == notCalled:
		n.breakBy(c, verdict{culprit: from, reason: Deadline, seq: m.Seq}, -1)
	default: // it works on it, or is done: nobody failed, the deadline was too short
		n.breakBy(c, verdict{culprit: NoRank, reason: Deadline, seq: m.Seq}, -1)
	}
}
