package node

import (
	"fmt"
	"slices"

	"github.com/allcast/allcast/internal/agree"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// maxAhead limits the agreements that other ranks have started and this rank has not. Each of them
// took its time to fail because this rank did not join.
const maxAhead = 1 << 10

// agreement is one attempt of a communicator's survivors to agree on their membership. Like calls,
// attempts are numbered by call order.
type agreement struct {
	m      *agree.Machine
	seq    uint64
	req    uint64
	called bool
}

// Agreed is the outcome of an agreement.
type Agreed struct {
	ID      uint32 // id of the new communicator; 0 for none
	Members []int  // world ranks of the new communicator, in its order; nil if the agreement failed
	Why     uint8  // agree.Late, agree.Closed, agree.Excluded
	Ranks   []int  // world ranks that caused the failure
}

// Agree starts an agreement of the living members on their membership; Settled returns req. It works
// on broken communicators. All members call it, and it ends the same way on all of them. On success
// with a nonzero id, the members get a new communicator. Its id is the one that one of the members
// passed, and no other communicator may use it.
func (n *Node) Agree(now step.Time, comm uint32, req uint64, id uint32) error {
	c := n.comms[comm]
	if c == nil || c.removed {
		return fmt.Errorf("%w: %d", ErrComm, comm)
	}
	if len(c.members) > wire.MaxAgree {
		return fmt.Errorf("%w: %d ranks: at most %d can agree", ErrSize, len(c.members), wire.MaxAgree)
	}
	a := n.agreement(c, c.nextAgree)
	c.nextAgree++
	a.req, a.called = req, true
	a.m.Call(now, id)
	n.settle(c, a)
	return nil
}

// Hurry stops an agreement from waiting any longer for living ranks that have not called Agree.
func (n *Node) Hurry(now step.Time, comm uint32, req uint64) {
	c := n.comms[comm]
	if c == nil {
		return
	}
	for _, a := range c.agreements {
		if a.called && a.req == req {
			a.m.Hurry(now)
			n.settle(c, a)
			return
		}
	}
}

// agreement finds an attempt, or starts it.
func (n *Node) agreement(c *comm, seq uint64) *agreement {
	for _, a := range c.agreements {
		if a.seq == seq {
			return a
		}
	}
	patience := max(n.cfg.Timeout, n.cfg.Deadline)
	a := &agreement{seq: seq, m: agree.New(agree.Config{Rank: c.rank, Size: len(c.members), Patience: patience})}
	for _, w := range n.live.deaths {
		if r, member := c.rankOf(w); member {
			a.m.Dead(r)
		}
	}
	c.agreements = append(c.agreements, a)
	return a
}

// handleAgree handles a message of an agreement.
func (n *Node) handleAgree(now step.Time, c *comm, from int, m *wire.Msg) {
	known := func(a *agreement) bool { return a.seq == m.Seq }
	if m.Seq < c.nextAgree && !slices.ContainsFunc(c.agreements, known) {
		return // the attempt has ended here, and all members were told
	}
	if c.removed && m.Seq >= c.nextAgree {
		n.sendAgreeGone(from, m)
		return
	}
	if m.Seq >= c.nextAgree+maxAhead || len(c.members) > wire.MaxAgree {
		n.stats.Stale++
		return
	}
	// The sender's deaths are handled like any other death notice.
	for _, r := range agree.Set(m.Agree.Dead).Ranks() {
		if r < len(c.members) {
			n.declareLost(now, c.members[r], from)
		}
	}
	if n.live.dead[n.cfg.Rank] || n.comms[c.id] != c {
		return
	}
	r, _ := c.rankOf(from)
	a := n.agreement(c, m.Seq)
	a.m.Message(now, r, m.Agree)
	n.settle(c, a)
}

// sendAgreeGone tells a rank that this rank has closed the communicator that it wants to agree on.
func (n *Node) sendAgreeGone(to int, m *wire.Msg) {
	switch m.Agree.Step {
	case wire.AgreeAsk, wire.AgreeState, wire.AgreePropose:
		n.send(to, &wire.Msg{
			Kind: wire.MsgAgree, Comm: m.Comm, Seq: m.Seq, Agree: &wire.Agree{Step: wire.AgreeGone},
		})
	}
}

// agreeDead reports a death to the agreements of a communicator.
func (n *Node) agreeDead(c *comm, rank int) {
	for _, a := range slices.Clone(c.agreements) {
		a.m.Dead(rank)
		n.settle(c, a)
	}
}

// agreeTimer runs the expired timers of a communicator's agreements.
func (n *Node) agreeTimer(now step.Time, c *comm) {
	for _, a := range slices.Clone(c.agreements) {
		if a.m.NextTimer() <= now {
			a.m.Timer(now)
			n.settle(c, a)
		}
	}
}

// settle sends the messages of an agreement and reports its outcome.
func (n *Node) settle(c *comm, a *agreement) {
	for _, s := range a.m.Sends() {
		if w := c.members[s.To]; !n.live.dead[w] {
			n.send(w, &wire.Msg{Kind: wire.MsgAgree, Comm: c.id, Seq: a.seq, Agree: &s.Msg})
		}
	}
	v := a.m.Outcome()
	if v == nil || !a.called {
		return // kept until the user calls Agree
	}
	at := slices.Index(c.agreements, a)
	if at < 0 {
		return
	}
	c.agreements = slices.Delete(c.agreements, at, at+1)
	n.out = append(n.out, Action{Kind: Settled, Comm: c.id, Req: a.req, Agreed: n.conclude(c, v)})
}

// conclude creates the agreed communicator. It exists before any message for it arrives: a rank that
// creates it first has informed this rank first, over the same connection.
func (n *Node) conclude(c *comm, v *wire.AgreeValue) *Agreed {
	var ranks []int
	for _, r := range agree.Set(v.Ranks).Ranks() {
		ranks = append(ranks, c.members[r])
	}
	if v.Why == agree.Agreed && !agree.Set(v.Ranks).Has(c.rank) {
		return &Agreed{Why: agree.Excluded, Ranks: []int{n.cfg.Rank}}
	}
	if v.Why != agree.Agreed {
		return &Agreed{Why: v.Why, Ranks: ranks}
	}
	if v.ID != 0 {
		if err := n.AddComm(v.ID, ranks); err != nil {
			// Only a peer that passed an id already in use can cause this.
			return &Agreed{Why: agree.Closed, Ranks: ranks}
		}
	}
	return &Agreed{ID: v.ID, Members: ranks}
}
