package node

import (
	"fmt"

	"github.com/allcast/allcast/internal/wire"
)

// RemoveComm ends the use of a communicator on this process: nothing can be started
// on it any more. What is under way goes on, and so does what others need of us to
// complete; after that it is forgotten, Removed says so, and messages for it are
// ignored.
func (n *Node) RemoveComm(comm uint32) error {
	c := n.comms[comm]
	if c == nil || c.removed {
		return fmt.Errorf("%w: %d", ErrComm, comm)
	}
	c.removed = true
	n.removing++
	return nil
}

// Comms is how many communicators there are.
func (n *Node) Comms() int { return len(n.comms) }

// sweep forgets the removed communicators that nobody needs any more. It is called
// where nothing goes through the list of communicators.
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
		n.graves[n.buried%len(n.graves)] = grave{c.id, c.nextSeq, c.broken}
		n.buried++
		n.refuse(c)
		n.out = append(n.out, Action{Kind: Removed, Comm: c.id})
	}
	clear(n.order[len(kept):])
	n.order = kept
}

// idle reports whether nothing of a communicator is under way, here or, as far as it
// needs us, elsewhere.
func (c *comm) idle() bool {
	if len(c.calls) > 0 {
		return false
	}
	for _, a := range c.agreements {
		if a.called {
			return false
		}
	}
	if c.broken != nil {
		return true // its operations have failed, and are quiet
	}
	if len(c.live) > 0 {
		return false
	}
	for _, st := range c.slots {
		if st != nil {
			return false // it drains
		}
	}
	return true
}

// refuse answers those who have already begun what we will never take part in.
func (n *Node) refuse(c *comm) {
	if c.broken != nil {
		return
	}
	told := make(map[int]bool)
	for _, early := range c.early {
		for _, m := range early {
			told[m.from] = true
		}
	}
	for r, w := range c.members { // not in the order of a map
		if told[r] {
			n.hasClosed(w, c.id, nil)
		}
	}
	for _, a := range c.agreements {
		n.refuseAgreement(c, a)
	}
}

// refuseAgreement tells those that take part in an agreement that we do not.
func (n *Node) refuseAgreement(c *comm, a *agreement) {
	if a.m.Outcome() != nil {
		return
	}
	for _, w := range c.members {
		if w != n.cfg.Rank && !n.live.dead[w] {
			n.send(w, &wire.Msg{Kind: wire.MsgAgree, Comm: c.id, Seq: a.seq, Agree: &wire.Agree{Step: wire.AgreeGone}})
		}
	}
}

// grave remembers a communicator that was removed.
type grave struct {
	comm    uint32
	nextSeq uint64
	broken  *verdict // why it was of no more use; nil: its user had no more use for it
}

// unknown takes a message for a communicator that is not there: all members make one
// before any uses it, so it has been. Most are late and nobody waits for an answer;
// but who agrees with us, or begins a call that we never made, would wait for ever.
// Only the last ones to go are remembered for that.
func (n *Node) unknown(from int, m *wire.Msg) {
	n.stats.Stale++
	switch m.Kind {
	case wire.MsgAgree:
		n.gone(from, m)
	case wire.MsgBarrier, wire.MsgReady:
		for _, g := range n.graves {
			if g.comm == m.Comm && m.Seq >= g.nextSeq && g != (grave{}) {
				n.hasClosed(from, m.Comm, g.broken)
				return
			}
		}
	}
}

// hasClosed tells a peer that we take no part in a communicator any more. If it lost a
// member, that is why, and what the peer is to hear first; if it broke, the peer hears why.
func (n *Node) hasClosed(to int, comm uint32, why *verdict) {
	n.tell(n.live.deaths, []int{to}, -1)
	if why == nil {
		why = &verdict{culprit: n.cfg.Rank, reason: Left}
	}
	n.send(to, why.message(comm))
}
