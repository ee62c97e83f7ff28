package mcast

import (
	"bytes"
	"slices"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// checkMsg checks that a message tells the truth.
func (c *cluster) checkMsg(m *member, msg *wire.Msg) {
	switch msg.Kind {
	case wire.MsgFetch:
		for _, q := range msg.Ranges {
			for psn := q.PSN; psn < q.PSN+q.N; psn++ {
				if m.placed[msg.Sub][psn] || c.state[msg.Sub][psn] != left {
					c.w.t.Fatalf("rank %d asks for PSN %d of subgroup %d: placed %v, state %d", m.rank, psn, msg.Sub, m.placed[msg.Sub][psn], c.state[msg.Sub][psn])
				}
				if m.asked[msg.Sub][psn] { // it is offered once
					c.w.t.Fatalf("rank %d asks for PSN %d of subgroup %d twice", m.rank, psn, msg.Sub)
				}
				m.asked[msg.Sub][psn] = true
			}
		}
	case wire.MsgAvail:
		for _, q := range msg.Ranges {
			if slices.Contains(m.placed[msg.Sub][q.PSN:q.PSN+q.N], false) {
				c.w.t.Fatalf("rank %d offers %v of subgroup %d, which it does not have", m.rank, q, msg.Sub)
			}
		}
	case wire.MsgFinal:
		if m.missing > 0 {
			c.w.t.Fatalf("rank %d sends Final and misses %d", m.rank, m.missing)
		}
	case wire.MsgActivate, wire.MsgChainSent:
		c.checkTurn(m)
		if msg.Kind == wire.MsgChainSent && !c.allLeft(m.rank) {
			c.w.t.Fatalf("rank %d says it has finished, with %d handed over and %d gone", m.rank, m.handed, m.told)
		}
	case wire.MsgAllSent:
		for r := range c.ranks {
			if !c.allLeft(r) {
				c.w.t.Fatalf("rank %d says that all have sent; rank %d has not", m.rank, r)
			}
		}
	case wire.MsgMark:
		for sub, n := range msg.Counts {
			first, _ := c.g.Block(sub, int(msg.Rank))
			for i := range n {
				if c.state[sub][first+i] != left {
					c.w.t.Fatalf("rank %d marks %d chunks of rank %d in subgroup %d; chunk %d has not left", m.rank, n, msg.Rank, sub, i)
				}
			}
		}
	}
}

// allLeft reports whether a rank's whole block has left its send buffer.
func (c *cluster) allLeft(rank int) bool {
	if c.g.Size() == 1 {
		return true
	}
	for sub := range c.state {
		psn, n := c.g.Block(sub, rank)
		for i := range n {
			if c.state[sub][psn+i] != left {
				return false
			}
		}
	}
	return true
}

// checkTurn: a rank multicasts, and passes the turn on, when all in its chain but
// its predecessor have finished.
func (c *cluster) checkTurn(m *member) {
	i := c.g.index[m.rank]
	chain := c.g.chains.members[c.g.chains.of[i]]
	for p := range int(c.g.chains.pos[i]) - 1 {
		if r := c.g.senders[chain[p]]; !c.allLeft(r) {
			c.w.t.Fatalf("rank %d is active before rank %d has finished", m.rank, r)
		}
	}
}

// checkCredit: what m hands over next has a place that every rank has granted.
func (c *cluster) checkCredit(m *member) {
	if m.op.cfg.Flow != FlowCredit {
		return
	}
	i := c.g.index[m.rank]
	place := c.g.chains.position(int(c.g.chains.of[i]), c.g.chains.before[i]+uint64(m.handed))
	for _, to := range c.ranks {
		if place >= to.op.cr.own {
			c.w.t.Fatalf("rank %d sends the chunk in place %d, rank %d has granted %d", m.rank, place, to.rank, to.op.cr.own)
		}
	}
}

// checkComplete: everything is here, ours is gone, and our right neighbour is done.
func (c *cluster) checkComplete(m *member) {
	switch {
	case m.complete:
		c.w.t.Fatalf("rank %d completes twice", m.rank)
	case m.missing > 0 || m.reads() > 0:
		c.w.t.Fatalf("rank %d completes with %d chunks missing and %d reads under way", m.rank, m.missing, m.reads())
	case !c.allLeft(m.rank) || m.handed != m.told:
		c.w.t.Fatalf("rank %d completes before its sends have", m.rank)
	case len(c.ranks) > 1 && !m.final:
		c.w.t.Fatalf("rank %d completes without its right neighbour's Final", m.rank)
	}
	right := c.ranks[(m.rank+1)%len(c.ranks)]
	if right.reads() > 0 {
		c.w.t.Fatalf("rank %d completes while rank %d reads from it", m.rank, right.rank)
	}
	c.sameBytes(m)
}

// reads is how many reads of a rank are under way and will place something.
func (m *member) reads() (n int) {
	for _, it := range m.fetch.items {
		if len(it.ranges) > 0 {
			n++
		}
	}
	return n
}

func (c *cluster) sameBytes(m *member) {
	got := c.mem.recv[m.rank]
	// Of a call in rounds, only what this round carries is there.
	for sub := range c.g.Subgroups() {
		for psn := range c.g.PSNs(sub) {
			off, length := c.g.Span(sub, psn, 1)
			if !bytes.Equal(got[off:off+length], c.mem.want[off:off+length]) {
				c.w.t.Fatalf("rank %d has wrong bytes in PSN %d of subgroup %d, rank %d's", m.rank, psn, sub, c.g.Owner(sub, psn))
			}
		}
	}
}

// invariants compares a Collective with what its driver knows.
func (c *cluster) invariants(m *member) {
	o := m.op
	if o.Phase() < m.phase {
		c.w.t.Fatalf("rank %d goes back from %v to %v", m.rank, m.phase, o.Phase())
	}
	m.phase = o.Phase()
	if int(o.missing()) != m.unknown {
		c.w.t.Fatalf("rank %d counts %d missing, it was not told of %d", m.rank, o.missing(), m.unknown)
	}
	var asked uint32
	for sub := range o.arrived {
		a := &o.arrived[sub]
		for psn := range a.Len() {
			if a.asked != nil && a.asked.Has(psn) {
				asked++
				if m.reported[sub][psn] {
					c.w.t.Fatalf("rank %d, PSN %d of subgroup %d: asked for, and it was told that it is here", m.rank, psn, sub)
				}
			}
			free := !m.placed[sub][psn] && !m.reading[sub][psn]
			if a.InPlace(psn) != m.placed[sub][psn] || a.Free(psn) != free {
				c.w.t.Fatalf("rank %d, PSN %d of subgroup %d: in place %v, free %v; want %v, %v", m.rank, psn, sub, a.InPlace(psn), a.Free(psn), m.placed[sub][psn], free)
			}
		}
	}
	if o.asked != asked {
		c.w.t.Fatalf("rank %d counts %d asked for, it is %d", m.rank, o.asked, asked)
	}
}

// verify checks that all ended well and nothing is left.
func (c *cluster) verify() {
	for _, m := range c.ranks {
		if !m.complete || !m.closed || m.missing > 0 {
			c.w.t.Fatalf("rank %d: complete %v, closed %v, %d missing", m.rank, m.complete, m.closed, m.missing)
		}
		c.sameBytes(m)
		if m.op.Timer() != step.Never || m.op.Phase() != step.Closed {
			c.w.t.Fatalf("rank %d is %v and wants a timer at %d", m.rank, m.op.Phase(), m.op.Timer())
		}
	}
}
