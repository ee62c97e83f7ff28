package node

import (
	"fmt"
	"maps"
	"slices"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// RemoveComm closes a communicator on this process: no call can start on it any more. Calls in flight
// continue, and so does the work that other ranks need to complete theirs. After that the node
// forgets the communicator, emits Removed, and ignores messages for it.
func (n *Node) RemoveComm(now step.Time, comm uint32) error {
	c := n.comms[comm]
	if c == nil || c.removed {
		return fmt.Errorf("%w: %d", ErrComm, comm)
	}
	c.removed = true
	n.removing++
	if c.window != nil && c.broken == nil {
		// Other ranks may still read what this rank sent eagerly.
		n.executeWindow(now, c, c.window.AwaitAll(n.steps[:0]))
	}
	return nil
}

// Comms returns the number of communicators.
func (n *Node) Comms() int { return len(n.comms) }

// sweep forgets the removed communicators that no rank needs any more. It must not run during an
// iteration over the list of communicators.
func (n *Node) sweep() {
	if n.removing == 0 {
		return
	}
	kept := n.order[:0]
	for _, c := range n.order {
		if !c.removed || !c.idle() {
			kept = append(kept, c)
			continue
		}
		n.removing--
		delete(n.comms, c.id)
		if c.broken != nil {
			n.lastBroken[n.brokenCount%len(n.lastBroken)] = brokenComm{c.id, c.broken}
			n.brokenCount++
		}
		n.refuse(c)
		n.out = append(n.out, Action{Kind: Removed, Comm: c.id})
	}
	clear(n.order[len(kept):])
	n.order = kept
}

// idle reports whether no work of a communicator remains, neither here nor on ranks that need this
// one.
func (c *comm) idle() bool {
	if len(c.calls.all) > 0 || len(c.mail.calls.all) > 0 {
		return false
	}
	for _, a := range c.agreements {
		if a.called {
			return false
		}
	}
	if c.broken != nil {
		return true // its operations have failed and are quiescent
	}
	if len(c.live) > 0 || len(c.mail.rounds) > 0 {
		return false
	}
	for _, st := range c.slots {
		if st != nil {
			return false // the slot drains
		}
	}
	return true
}

// refuse answers ranks that have started a call or agreement in which this rank will never take part.
func (n *Node) refuse(c *comm) {
	if c.broken != nil {
		return
	}
	for _, r := range c.earlyCallers() {
		n.sendClosed(c.members[r], c.id, nil)
	}
	for _, a := range c.agreements {
		n.refuseAgreement(c, a)
	}
}

// earlyCallers returns the ranks that are known to have started a call which this rank has not made. They may wait for
// this rank, and it may never have sent them anything.
func (c *comm) earlyCallers() []int {
	started := make(map[int]bool)
	for _, early := range c.early.bySeq {
		for _, m := range early {
			started[m.from] = true
		}
	}
	for _, o := range c.mail.offers {
		if !o.msg.Flag { // the sender of an eager message does not wait
			started[o.from] = true
		}
	}
	if r := c.window.Unmade(c.nextSeq); r >= 0 {
		started[r] = true
	}
	return slices.Sorted(maps.Keys(started)) // in a deterministic order
}

// refuseAgreement tells the participants of an agreement that this rank does not take part.
func (n *Node) refuseAgreement(c *comm, a *agreement) {
	if a.m.Outcome() != nil {
		return
	}
	for _, w := range c.members {
		if w != n.cfg.Rank && !n.live.dead[w] {
			n.send(w, &wire.Msg{
				Kind: wire.MsgAgree, Comm: c.id, Seq: a.seq, Agree: &wire.Agree{Step: wire.AgreeGone},
			})
		}
	}
}

// brokenComm remembers the verdict of a communicator that broke and was removed.
type brokenComm struct {
	comm    uint32
	verdict *verdict
}

// handleUnknownComm handles a message for an unknown communicator. All members add a communicator before any uses it,
// so this one existed. Most such messages are late and need no answer. But a rank that takes part in an agreement, or
// starts a call that this rank never made, would wait for ever.
//
// This rank does not remember which calls it has made, as it would have to do so for ever. The other rank can tell
// (handleGone). The verdicts of the last communicators that broke are remembered, to blame the rank that failed.
func (n *Node) handleUnknownComm(from int, m *wire.Msg) {
	n.stats.Stale++
	switch m.Kind {
	case wire.MsgAgree:
		n.sendAgreeGone(from, m)
	case wire.MsgBarrier, wire.MsgReady, wire.MsgEagerFetch, wire.MsgFinishedAsk, wire.MsgOffer, wire.MsgProbeWait:
		if m.Flag {
			return // the sender of an eager message does not wait
		}
		for _, g := range n.lastBroken {
			if g.comm == m.Comm && g.verdict != nil {
				n.sendClosed(from, m.Comm, g.verdict)
				return
			}
		}
		n.sendDeaths(n.live.deaths, []int{from}, -1)
		n.send(from, &wire.Msg{Kind: wire.MsgWaitState, Comm: m.Comm, Seq: m.Seq, State: gone})
	}
}

// handleGone handles the news that a member has closed the communicator. Messages between two ranks stay in order, so
// everything that the member has sent for any call was handled before. If a call still lacks something of it, the
// member never makes that call. Otherwise the member has made the call, or the call does not need it.
func (n *Node) handleGone(c *comm, from int, m *wire.Msg) {
	if c.broken != nil {
		return
	}
	r, _ := c.rankOf(from)
	st, t := c.find(m.Seq), c.trace
	lacks := st != nil && st.op.Awaits(r) || c.window.Awaits(r) || t != nil && t.call.next() == m.Seq && t.target == r
	if _, isMail := wire.MailSender(m.Seq); isMail && !lacks {
		lacks = c.mail.hasGone(c, r)
	}
	if lacks {
		n.breakAndNotify(c, verdict{culprit: from, reason: Left, seq: m.Seq}, from)
	}
}

// sendClosed tells a peer that this rank has left a communicator without making a call of the peer. If the communicator
// lost a member, the peer first learns of that death. If it broke, the peer learns the verdict.
func (n *Node) sendClosed(to int, comm uint32, v *verdict) {
	n.sendDeaths(n.live.deaths, []int{to}, -1)
	if v == nil {
		v = &verdict{culprit: n.cfg.Rank, reason: Left}
	}
	n.send(to, v.message(comm))
}
