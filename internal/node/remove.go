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
		n.lastRemoved[n.removedCount%len(n.lastRemoved)] = removedComm{c.id, c.nextSeq, c.broken}
		n.removedCount++
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

// removedComm remembers a communicator that was removed.
type removedComm struct {
	comm    uint32
	nextSeq uint64
	broken  *verdict // verdict that broke it; nil if the user closed an intact communicator
}

// handleUnknownComm handles a message for an unknown communicator. All members add a communicator
// before any uses it, so this one existed. Most such messages are late and need no answer. But a rank
// that takes part in an agreement, or starts a call that this rank never made, would wait for ever.
// Only the most recently removed communicators are remembered for that purpose.
func (n *Node) handleUnknownComm(from int, m *wire.Msg) {
	n.stats.Stale++
	switch m.Kind {
	case wire.MsgAgree:
		n.sendAgreeGone(from, m)
	case wire.MsgBarrier, wire.MsgReady, wire.MsgEagerFetch, wire.MsgFinishedAsk, wire.MsgOffer, wire.MsgProbeWait:
		_, isMail := wire.MailSender(m.Seq)
		if m.Flag || m.Kind == wire.MsgProbeWait && !isMail {
			return // an eager message needs no answer, and the greeting before a probe has got one
		}
		for _, g := range n.lastRemoved {
			if g.comm == m.Comm && m.Seq >= g.nextSeq && g != (removedComm{}) {
				n.sendClosed(from, m.Comm, g.broken)
				return
			}
		}
	}
}

// sendClosed tells a peer that this rank has left a communicator. If the communicator lost a member,
// the peer first learns of that death. If it broke, the peer learns the verdict.
func (n *Node) sendClosed(to int, comm uint32, v *verdict) {
	n.sendDeaths(n.live.deaths, []int{to}, -1)
	if v == nil {
		v = &verdict{culprit: n.cfg.Rank, reason: Left}
	}
	n.send(to, v.message(comm))
}
