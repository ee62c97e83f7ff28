package node

import (
	"fmt"
	"slices"

	"github.com/allcast/allcast/internal/agree"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// maxAhead bounds the agreements that others have begun and we have not: each of
// them took its time to fail because we did not come.
const maxAhead = 1 << 10

// agreement is one attempt of a communicator's survivors to agree on who they are.
// Like calls, attempts are numbered by the order in which they are made.
type agreement struct {
	m      *agree.Machine
	seq    uint64
	req    uint64
	called bool
}

// Agreed is how an agreement ended.
type Agreed struct {
	ID      uint32 // of the new communicator; 0: none was made
	Members []int  // of the new communicator, world ranks in its order; nil: it failed
	Why     uint8  // agree.Late, agree.Closed, agree.Excluded
	Ranks   []int  // world ranks that it failed because of
}

// Agree begins an agreement of the members that live on who they are; req comes
// back with Settled. It works on a broken communicator, and that is what it is
// for. All members call it; it ends for all of them alike. If it ends well and id is
// not 0, there is a communicator of them then: its id is what one of them gave, and
// nobody else may use it.
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

// Hurry says that an agreement is not to wait any longer for ranks that live and have
// not come.
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

// agreement finds an attempt, or begins it.
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

// agreeMsg takes a message of an agreement.
func (n *Node) agreeMsg(now step.Time, c *comm, from int, m *wire.Msg) {
	if m.Seq < c.nextAgree && !slices.ContainsFunc(c.agreements, func(a *agreement) bool { return a.seq == m.Seq }) {
		return // it is over here, and all were told
	}
	if c.removed && m.Seq >= c.nextAgree {
		n.gone(from, m)
		return
	}
	if m.Seq >= c.nextAgree+maxAhead || len(c.members) > wire.MaxAgree {
		n.stats.Stale++
		return
	}
	// What it knows is news here like any other.
	for _, r := range agree.Set(m.Agree.Dead).Ranks() {
		if r < len(c.members) {
			n.declare(now, c.members[r], from)
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

// gone says that we have closed a communicator that others still want to agree on.
func (n *Node) gone(to int, m *wire.Msg) {
	switch m.Agree.Step {
	case wire.AgreeAsk, wire.AgreeState, wire.AgreePropose:
		n.send(to, &wire.Msg{Kind: wire.MsgAgree, Comm: m.Comm, Seq: m.Seq, Agree: &wire.Agree{Step: wire.AgreeGone}})
	}
}

// agreeDead tells a communicator's agreements of a death.
func (n *Node) agreeDead(c *comm, rank int) {
	for _, a := range slices.Clone(c.agreements) {
		a.m.Dead(rank)
		n.settle(c, a)
	}
}

// agreeTimer lets agreements look at the clock.
func (n *Node) agreeTimer(now step.Time, c *comm) {
	for _, a := range slices.Clone(c.agreements) {
		if a.m.NextTimer() <= now {
			a.m.Timer(now)
			n.settle(c, a)
		}
	}
}

// settle sends what an agreement has to say and reports it once it is over.
func (n *Node) settle(c *comm, a *agreement) {
	for _, s := range a.m.Sends() {
		if w := c.members[s.To]; !n.live.dead[w] {
			n.send(w, &wire.Msg{Kind: wire.MsgAgree, Comm: c.id, Seq: a.seq, Agree: &s.Msg})
		}
	}
	v := a.m.Outcome()
	if v == nil || !a.called {
		return // kept for when the user comes
	}
	at := slices.Index(c.agreements, a)
	if at < 0 {
		return
	}
	c.agreements = slices.Delete(c.agreements, at, at+1)
	n.out = append(n.out, Action{Kind: Settled, Comm: c.id, Req: a.req, Agreed: n.conclude(c, v)})
}

// conclude makes the communicator that was agreed on. It is there before any
// message for it can be: whoever has made it first has told us first.
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
			// Only a peer that gave an id that is in use can have done that.
			return &Agreed{Why: agree.Closed, Ranks: ranks}
		}
	}
	return &Agreed{ID: v.ID, Members: ranks}
}
