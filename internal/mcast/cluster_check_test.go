package mcast

import (
	"bytes"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// checkMsg checks that a message tells the truth.
func (m *member) checkMsg(msg *wire.Msg) {
	c, w, sub := m.c, m.c.w, int(msg.Stream)
	switch msg.Kind {
	case wire.MsgFetch:
		m.each(sub, msg.Ranges, func(psn uint32, f *chunkFlags) {
			if *f&(placed|asked) != 0 || c.state[sub][psn] != left { // a chunk is offered once
				w.Failf("rank %d asks for PSN %d of stream %d: flags %b, state %d", m.rank, psn, sub, *f, c.state[sub][psn])
			}
			*f |= asked
		})
	case wire.MsgAvail:
		m.each(sub, msg.Ranges, func(psn uint32, f *chunkFlags) {
			if *f&placed == 0 {
				w.Failf("rank %d offers PSN %d of subgroup %d, which it does not have", m.rank, psn, sub)
			}
		})
	case wire.MsgFinal, wire.MsgFinalSum:
		if m.missing > 0 {
			w.Failf("rank %d sends Final and misses %d", m.rank, m.missing)
		}
	case wire.MsgActivate, wire.MsgChainSent:
		m.checkTurn()
		if msg.Kind == wire.MsgChainSent && !c.allLeft(m.rank) {
			w.Failf("rank %d says it has finished, with %d handed over and %d gone", m.rank, m.handed, m.told)
		}
	case wire.MsgAllSent:
		for r := range c.ranks {
			if !c.allLeft(r) {
				w.Failf("rank %d says that all have sent; rank %d has not", m.rank, r)
			}
		}
	case wire.MsgMark:
		for sub, n := range msg.Counts {
			stream := c.g.stream(int(c.g.index[msg.Rank]), sub)
			first, _ := c.g.Block(stream, int(msg.Rank))
			for i := range n {
				if c.state[stream][first+i] != left {
					w.Failf("rank %d marks %d chunks of rank %d in subgroup %d; chunk %d has not left", m.rank, n, msg.Rank, sub, i)
				}
			}
		}
	}
}

// allLeft reports whether the whole block of a rank has left its send buffer.
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

// checkTurn: a rank multicasts, and passes the turn on, when all before it in its chain have
// finished, except its predecessor.
func (m *member) checkTurn() {
	g := m.c.g
	i := g.index[m.rank]
	chain := g.chains.members[g.chains.of[i]]
	for p := range int(g.chains.pos[i]) - 1 {
		if r := g.senders[chain[p]]; !m.c.allLeft(r) {
			m.c.w.Failf("rank %d is active before rank %d has finished", m.rank, r)
		}
	}
}

// checkCredit: every rank has granted the place of the chunk that m hands over next.
func (m *member) checkCredit() {
	if m.op.cfg.Flow != FlowCredit {
		return
	}
	g := m.c.g
	i := g.index[m.rank]
	place := g.chains.position(int(g.chains.of[i]), g.chains.before[i]+uint64(m.handed))
	for _, to := range m.c.ranks {
		if place >= to.op.cr.own {
			m.c.w.Failf("rank %d sends the chunk in place %d, rank %d has granted %d", m.rank, place, to.rank, to.op.cr.own)
		}
	}
}

// checkComplete: every chunk is here, the own block has left, and the right neighbour is done.
func (m *member) checkComplete() {
	c, w := m.c, m.c.w
	switch {
	case m.complete:
		w.Failf("rank %d completes twice", m.rank)
	case m.missing > 0 || m.reads() > 0:
		w.Failf("rank %d completes with %d chunks missing and %d reads in progress", m.rank, m.missing, m.reads())
	case !c.allLeft(m.rank) || m.handed != m.told:
		w.Failf("rank %d completes before its sends have", m.rank)
	case len(c.ranks) > 1 && !m.final:
		w.Failf("rank %d completes without the Final of its right neighbour", m.rank)
	}
	if right := c.ranks[(m.rank+1)%len(c.ranks)]; right.reads() > 0 {
		w.Failf("rank %d completes while rank %d reads from it", m.rank, right.rank)
	}
	m.sameBytes()
}

// reads counts the reads in progress that will place a chunk.
func (m *member) reads() (n int) {
	for _, r := range m.fetch.Items() {
		if len(r.ranges) > 0 {
			n++
		}
	}
	return n
}

// sameBytes compares the chunks of this round, which may be one of several, with the result.
func (m *member) sameBytes() {
	g, got, want := m.c.g, m.c.recv[m.rank], m.c.Want()
	for sub := range g.Streams() {
		for psn := range g.PSNs(sub) {
			off, length := g.Span(sub, psn, 1)
			if !bytes.Equal(got[off:off+length], want[off:off+length]) {
				m.c.w.Failf("rank %d has wrong bytes in PSN %d of subgroup %d from rank %d", m.rank, psn, sub, g.Owner(sub, psn))
			}
		}
	}
}

// Check compares the Collective with the state of its driver.
func (m *member) Check() {
	if !m.stepped {
		return
	}
	m.stepped = false
	o, w := m.op, m.c.w
	if o.Phase() < m.phase {
		w.Failf("rank %d goes back from %v to %v", m.rank, m.phase, o.Phase())
	}
	m.phase = o.Phase()
	if int(o.count.missing) != m.unknown {
		w.Failf("rank %d counts %d missing, it was not told of %d", m.rank, o.count.missing, m.unknown)
	}
	for sub := range o.arrived {
		a := &o.arrived[sub]
		for psn := range a.Len() {
			f := m.chunks[sub][psn]
			if has(&o.fetch.streams[sub].asked, psn) && f&reported != 0 {
				w.Failf("rank %d still asks for PSN %d of subgroup %d, and was told that it is here", m.rank, psn, sub)
			}
			if a.InPlace(psn) != (f&placed != 0) || a.Free(psn) != (f&(placed|reading) == 0) {
				w.Failf("rank %d, PSN %d of subgroup %d: in place %v, free %v; flags %b",
					m.rank, psn, sub, a.InPlace(psn), a.Free(psn), f)
			}
		}
	}
}

// verify checks that all ranks ended well and hold nothing.
func (c *cluster) verify() {
	for _, m := range c.ranks {
		if !m.complete || !m.closed || m.missing > 0 {
			c.w.Failf("rank %d: complete %v, closed %v, %d missing", m.rank, m.complete, m.closed, m.missing)
		}
		m.sameBytes()
		if m.op.Timer() != step.Never || m.op.Phase() != step.Closed {
			c.w.Failf("rank %d is %v and wants a timer at %d", m.rank, m.op.Phase(), m.op.Timer())
		}
	}
}

// empty checks that all room came back.
func (w *world) empty() {
	for r, h := range w.hosts {
		if h.pool.Lent() != 0 || h.pool.ops != 0 {
			w.Failf("rank %d: %d places are still lent, to %d operations", r, h.pool.Lent(), h.pool.ops)
		}
	}
}
