package mcast

import (
	"slices"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// What a chunk has been through.
const (
	unsent uint8 = iota
	handed       // to the fabric
	left         // the send buffer
)

// step steps a Collective, carries out its actions and checks what must always hold.
func (c *cluster) step(m *member, ev step.Event) []step.Action {
	acts := m.op.Step(c.w.now, ev, nil)
	c.do(m, acts)
	return acts
}

func (c *cluster) do(m *member, acts []step.Action) {
	for i := range acts {
		if m.closed {
			c.w.t.Fatalf("rank %d: an action after the last", m.rank)
		}
		c.act(m, &acts[i])
	}
	c.invariants(m)
}

func (c *cluster) act(m *member, a *step.Action) {
	checkRange(c.w.t, m.op, a)
	c.log("rank %d: %+v", m.rank, *a)
	switch a.Kind {
	case step.ActSend:
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
		c.push(l, item{msg: wire.AppendMsg(nil, &a.Msg)})
	case step.ActMulticast:
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
	case step.ActRead:
		from := c.ranks[a.To]
		for _, q := range a.Ranges {
			for psn := q.PSN; psn < q.PSN+q.N; psn++ {
				if m.placed[a.Sub][psn] || m.reading[a.Sub][psn] || m.wanted[a.Sub][psn] || !from.placed[a.Sub][psn] {
					c.w.t.Fatalf("rank %d reads PSN %d of subgroup %d: placed %v, under read %v, to be %v, there at rank %d %v",
						m.rank, psn, a.Sub, m.placed[a.Sub][psn], m.reading[a.Sub][psn], m.wanted[a.Sub][psn], a.To, from.placed[a.Sub][psn])
				}
				m.wanted[a.Sub][psn] = true
			}
		}
		if n := len(m.claims.items) + len(m.fetch.items) + 1; n > MaxReads {
			c.w.t.Fatalf("rank %d has %d reads under way", m.rank, n)
		}
		c.push(&m.claims, item{sub: a.Sub, ranges: a.Ranges})
	case step.ActComplete:
		c.checkComplete(m)
		m.complete = true
	case step.ActClosed:
		if !m.complete {
			c.w.t.Fatalf("rank %d closed before it completed", m.rank)
		}
		m.closed = true
		c.open--
	case step.ActMismatch:
		c.w.t.Fatalf("rank %d says that rank %d called something else", m.rank, a.To)
	}
}

// datagram is a chunk arriving at a receive worker.
func (c *cluster) datagram(m *member, it item) {
	if m.closed {
		return // the driver has forgotten the Collective
	}
	in := m.intakes[it.sub]
	p, psn, off, v := in.Judge(clusterToken, m.op.cfg.Comm, c.w.layout.Imm(m.op.cfg.Seq, it.psn), len(it.payload))
	placed, reading := m.placed[it.sub][it.psn], m.reading[it.sub][it.psn]
	switch {
	case psn != it.psn:
		c.w.t.Fatalf("rank %d takes PSN %d for %d", m.rank, it.psn, psn)
	case v == Placed && (placed || reading || m.complete):
		c.w.t.Fatalf("rank %d places PSN %d of subgroup %d: placed %v, under read %v, complete %v", m.rank, it.psn, it.sub, placed, reading, m.complete)
	case v == Placed:
		want, _, _ := c.g.Locate(it.sub, it.psn)
		if off != want {
			c.w.t.Fatalf("rank %d places PSN %d of subgroup %d at %d, want %d", m.rank, it.psn, it.sub, off, want)
		}
		copy(c.mem.recv[m.rank][off:], it.payload)
		in.Place(p, wire.Range{PSN: psn, N: 1})
		m.placed[it.sub][it.psn] = true
		m.missing--
	case v == Duplicate && !placed, v == Late && !reading && !placed, v == Foreign, v == Stale:
		c.w.t.Fatalf("rank %d, PSN %d of subgroup %d: verdict %d, placed %v, under read %v", m.rank, it.psn, it.sub, v, placed, reading)
	default:
		in.Ignore(p, v, 1)
	}
	if in.Due() {
		c.flush(m, it.sub)
	}
	if len(m.grams.items) == 0 {
		for sub := range m.intakes {
			c.flush(m, sub)
		}
	}
}

// flush hands over what a receive worker has to report. The Collective hears of it later.
func (c *cluster) flush(m *member, sub int) {
	if r := m.intakes[sub].Flush(); r != nil {
		c.push(&m.reports, item{sub: sub, report: r})
	}
}

// heard is a report reaching the Collective.
func (c *cluster) heard(m *member, it item) {
	if m.closed {
		return
	}
	for _, run := range it.report.Runs {
		for i := range run.N {
			if m.reported[it.sub][run.PSN+i] {
				c.w.t.Fatalf("rank %d: PSN %d of subgroup %d is reported twice", m.rank, run.PSN+i, it.sub)
			}
			m.reported[it.sub][run.PSN+i] = true
			m.unknown--
		}
		c.do(m, m.op.Placed(c.w.now, it.sub, run.Range, nil))
	}
	if it.report.Ignored.Late > 0 {
		m.op.cfg.Est.Late(c.w.now)
	}
}

// claim is a receive worker claiming chunks for a read.
func (c *cluster) claim(m *member, it item) {
	in := m.intakes[it.sub]
	won, busy := in.Claim(m.op.arrived[it.sub].Placement, it.ranges, nil)
	if busy {
		c.w.t.Fatalf("rank %d: somebody else writes", m.rank)
	}
	for _, q := range it.ranges {
		for psn := q.PSN; psn < q.PSN+q.N; psn++ {
			m.wanted[it.sub][psn] = false
		}
	}
	for _, q := range won {
		for psn := q.PSN; psn < q.PSN+q.N; psn++ {
			if m.placed[it.sub][psn] || m.reading[it.sub][psn] {
				c.w.t.Fatalf("rank %d claims PSN %d of subgroup %d: placed %v, under read %v", m.rank, psn, it.sub, m.placed[it.sub][psn], m.reading[it.sub][psn])
			}
			m.reading[it.sub][psn] = true
		}
	}
	c.flush(m, it.sub)
	c.push(&m.fetch, item{sub: it.sub, ranges: won})
}

// read is a one-sided read being carried out.
func (c *cluster) read(m *member, it item) {
	from := c.ranks[m.op.left]
	for _, q := range it.ranges {
		if from.complete || m.complete {
			c.w.t.Fatalf("rank %d reads from rank %d: one of them has given its buffer back", m.rank, from.rank)
		}
		off, length := c.g.Span(it.sub, q.PSN, q.N)
		copy(c.mem.recv[m.rank][off:off+length], c.mem.recv[from.rank][off:off+length])
		m.op.arrived[it.sub].Finish(q.PSN, q.N)
		for psn := q.PSN; psn < q.PSN+q.N; psn++ {
			m.placed[it.sub][psn], m.reading[it.sub][psn], m.reported[it.sub][psn] = true, false, true
			m.missing--
			m.unknown--
			if c.g.Owner(it.sub, psn) == from.rank {
				if c.reads[it.sub][psn]++; c.reads[it.sub][psn] > 1 {
					c.w.t.Fatalf("PSN %d of subgroup %d was read %d times from its owner", psn, it.sub, c.reads[it.sub][psn])
				}
			}
		}
	}
	c.step(m, step.Event{Kind: step.EvRead, Sub: it.sub, Ranges: it.ranges})
}
