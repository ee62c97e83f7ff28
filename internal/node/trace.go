package node

import "github.com/allcast/allcast/internal/protocol"

// States that a rank can answer MsgWhy with.
const (
	notCalled uint8 = iota // it has not made this call
	waiting                // it waits for Msg.Rank (a rank of the communicator)
	busy                   // it waits for nobody
	complete               // it has completed the call
)

// trace is the search for the rank that a late call waits for.
type trace struct {
	target  int // whom we asked, a rank of the communicator
	hops    int
	askedAt protocol.Time
	timeout protocol.Time
}

func (k *call) deadlineAt(deadline protocol.Time) protocol.Time {
	if k.trace != nil {
		return k.trace.askedAt + k.trace.timeout
	}
	return k.startAt + deadline
}

// checkDeadlines starts a search for each call that took too long, and ends one
// that gets no answer.
func (n *Node) checkDeadlines(now protocol.Time, c *comm) {
	if n.cfg.Deadline <= 0 {
		return
	}
	for _, k := range append([]*call(nil), c.calls...) {
		if c.broken != nil {
			return
		}
		if now < k.deadlineAt(n.cfg.Deadline) {
			continue
		}
		if k.trace != nil {
			n.breakBy(now, c, verdict{culprit: c.members[k.trace.target], reason: Lost, seq: k.seq}, -1)
			return
		}
		k.trace = &trace{timeout: max(n.cfg.Timeout, 1)}
		target := c.rank
		if st := c.find(k.seq + uint64(k.round)); st != nil && st.call == k {
			target = st.op.WaitingOn()
		}
		n.ask(now, c, k, target)
	}
}

// ask goes on with the search at target.
func (n *Node) ask(now protocol.Time, c *comm, k *call, target int) {
	t := k.trace
	t.hops++
	switch {
	case target == c.rank && t.hops == 1:
		n.breakBy(now, c, verdict{culprit: n.cfg.Rank, reason: Deadline, seq: k.seq}, -1)
		return
	case target == c.rank || t.hops > 2*len(c.members):
		// They wait in a circle, or things moved while we asked.
		n.breakBy(now, c, verdict{culprit: NoRank, reason: Deadline, seq: k.seq}, -1)
		return
	}
	t.target, t.askedAt = target, now
	n.send(c.members[target], &protocol.Msg{Kind: protocol.MsgWhy, Comm: c.id, Seq: k.seq + uint64(k.round)})
}

// explain answers what we wait for.
func (n *Node) explain(c *comm, from int, m *protocol.Msg) {
	a := protocol.Msg{Kind: protocol.MsgBecause, Comm: c.id, Seq: m.Seq, State: complete}
	if st := c.find(m.Seq); st != nil && !st.done {
		a.State = waiting
		w := st.op.WaitingOn()
		a.Rank = uint32(w)
		if w == c.rank {
			a.State = busy
		}
	} else if st == nil && int64(m.Seq) > c.lastSeq[c.layout.Slot(m.Seq)] {
		a.State = notCalled
	}
	n.send(from, &a)
}

// traced goes on with the search after an answer.
func (n *Node) traced(now protocol.Time, c *comm, from int, m *protocol.Msg) {
	for _, k := range c.calls {
		t := k.trace
		if c.broken != nil || t == nil || k.seq+uint64(k.round) != m.Seq || c.members[t.target] != from {
			continue
		}
		switch {
		case m.State == waiting && int(m.Rank) < len(c.members):
			n.ask(now, c, k, int(m.Rank))
		case m.State == notCalled || m.State == busy:
			n.breakBy(now, c, verdict{culprit: from, reason: Deadline, seq: m.Seq}, -1)
		default:
			n.breakBy(now, c, verdict{culprit: NoRank, reason: Deadline, seq: m.Seq}, -1)
		}
		return
	}
}
