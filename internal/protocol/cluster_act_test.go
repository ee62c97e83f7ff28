package protocol

import (
	"slices"
)

// What a chunk has been through.
const (
	unsent uint8 = iota
	handed       // to the fabric
	left         // the send buffer
)

// step steps an Op, carries out its actions and checks what must always hold.
func (c *cluster) step(m *member, ev Event) []Action {
	acts := m.op.Step(c.w.now, ev, nil)
	c.do(m, acts)
	return acts
}

func (c *cluster) do(m *member, acts []Action) {
	for i := range acts {
		if m.closed {
			c.w.t.Fatalf("rank %d: an action after the last", m.rank)
		}
		c.act(m, &acts[i])
	}
	c.invariants(m)
}

func (c *cluster) act(m *member, a *Action) {
	checkRange(c.w.t, m.op, a)
	c.log("rank %d: %+v", m.rank, *a)
	switch a.Kind {
	case ActSend:
		if !slices.Contains(c.peers[m.rank], a.To) {
			c.w.t.Fatalf("rank %d sends kind %d to rank %d, which is no peer", m.rank, a.Msg.Kind, a.To)
		}
		c.checkMsg(m, &a.Msg)
		to := c.ranks[a.To]
		l := to.inbox[m.rank]
		if l == nil {
			l = &lane{kind: laneMsg, at: to, from: m.rank}
			to.inbox[m.rank] = l
		}
		c.push(l, item{msg: AppendMsg(nil, &a.Msg)})
	case ActMulticast:
		c.checkTurn(m)
		for i := range a.N {
			if c.state[a.Sub][a.PSN+i] != unsent {
				c.w.t.Fatalf("rank %d multicasts PSN %d of subgroup %d twice", m.rank, a.PSN+i, a.Sub)
			}
			c.state[a.Sub][a.PSN+i] = handed
			c.checkCredit(m)
			m.handed++
			c.push(&m.nic, item{sub: a.Sub, psn: a.PSN + i})
		}
		if m.handed-m.told > 3*m.op.cfg.Batch {
			c.w.t.Fatalf("rank %d has %d chunks under way", m.rank, m.handed-m.told)
		}
	case ActRead:
		from := c.ranks[a.To]
		for psn := a.PSN; psn < a.PSN+a.N; psn++ {
			if m.placed[a.Sub][psn] || m.reading[a.Sub][psn] || !from.placed[a.Sub][psn] {
				c.w.t.Fatalf("rank %d reads PSN %d of subgroup %d: placed %v, under read %v, there at rank %d %v",
					m.rank, psn, a.Sub, m.placed[a.Sub][psn], m.reading[a.Sub][psn], a.To, from.placed[a.Sub][psn])
			}
			m.reading[a.Sub][psn] = true
		}
		c.push(&m.fetch, item{sub: a.Sub, psn: a.PSN, n: a.N})
	case ActComplete:
		c.checkComplete(m)
		m.complete = true
	case ActClosed:
		if !m.complete {
			c.w.t.Fatalf("rank %d closed before it completed", m.rank)
		}
		m.closed = true
		c.open--
	case ActMismatch:
		c.w.t.Fatalf("rank %d says that rank %d called something else", m.rank, a.To)
	}
}

// datagram is a chunk arriving.
func (c *cluster) datagram(m *member, it item) {
	if m.closed {
		return // the driver has forgotten the Op
	}
	off, v, acts := m.op.Chunk(c.w.now, it.sub, it.psn, len(it.payload), nil)
	placed, reading := m.placed[it.sub][it.psn], m.reading[it.sub][it.psn]
	switch {
	case v == Placed && (placed || reading || m.complete):
		c.w.t.Fatalf("rank %d places PSN %d of subgroup %d: placed %v, under read %v, complete %v", m.rank, it.psn, it.sub, placed, reading, m.complete)
	case v == Placed:
		want, _, _ := c.g.Locate(it.sub, it.psn)
		if off != want {
			c.w.t.Fatalf("rank %d places PSN %d of subgroup %d at %d, want %d", m.rank, it.psn, it.sub, off, want)
		}
		copy(c.mem.recv[m.rank][off:], it.payload)
		m.placed[it.sub][it.psn] = true
		m.missing--
	case v == Duplicate && !placed, v == Late && !reading, v == Foreign:
		c.w.t.Fatalf("rank %d, PSN %d of subgroup %d: verdict %d, placed %v, under read %v", m.rank, it.psn, it.sub, v, placed, reading)
	}
	c.do(m, acts)
}

// read is a one-sided read being carried out.
func (c *cluster) read(m *member, it item) {
	from := c.ranks[m.op.left]
	if from.complete || m.complete {
		c.w.t.Fatalf("rank %d reads from rank %d: one of them has given its buffer back", m.rank, from.rank)
	}
	off, length := c.g.Span(it.sub, it.psn, it.n)
	copy(c.mem.recv[m.rank][off:off+length], c.mem.recv[from.rank][off:off+length])
	for psn := it.psn; psn < it.psn+it.n; psn++ {
		m.placed[it.sub][psn], m.reading[it.sub][psn] = true, false
		m.missing--
		if c.g.Owner(it.sub, psn) == from.rank {
			if c.reads[it.sub][psn]++; c.reads[it.sub][psn] > 1 {
				c.w.t.Fatalf("PSN %d of subgroup %d was read %d times from its owner", psn, it.sub, c.reads[it.sub][psn])
			}
		}
	}
	c.step(m, Event{Kind: EvRead, Sub: it.sub, PSN: it.psn, N: it.n})
}
