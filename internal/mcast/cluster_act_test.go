package mcast

import (
	"slices"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// step steps the Collective and carries out its actions.
func (m *member) step(ev step.Event) []step.Action {
	acts := m.op.Step(m.c.w.Now, ev, nil)
	m.do(acts)
	return acts
}

func (m *member) do(acts []step.Action) {
	m.stepped = true
	for i := range acts {
		if m.closed {
			m.c.w.Failf("rank %d acts after it was closed", m.rank)
		}
		m.act(&acts[i])
	}
}

func (m *member) act(a *step.Action) {
	c := m.c
	w := c.w
	checkRange(w.T, m.op, a)
	if c.log != nil {
		c.log(m.rank, a)
	}
	switch a.Kind {
	case step.ActSend:
		if !slices.Contains(c.peers[m.rank], a.To) {
			w.Failf("rank %d sends kind %d to rank %d, which is no peer", m.rank, a.Msg.Kind, a.To)
		}
		m.checkMsg(&a.Msg)
		c.ranks[a.To].from(m.rank).Push(wire.AppendMsg(nil, &a.Msg))
	case step.ActMulticast:
		m.checkTurn()
		for i := range a.N {
			if c.state[a.Stream][a.PSN+i] != unsent {
				w.Failf("rank %d multicasts PSN %d of subgroup %d twice", m.rank, a.PSN+i, a.Stream)
			}
			c.state[a.Stream][a.PSN+i] = handed
			m.checkCredit()
			m.handed++
			m.nic.Push(datagram{sub: a.Stream, psn: a.PSN + i, last: i == a.N-1})
		}
		if m.handed-m.told > 3*m.op.cfg.Batch {
			w.Failf("rank %d has %d chunks in flight", m.rank, m.handed-m.told)
		}
	case step.ActRead:
		m.each(a.Stream, a.Ranges, func(psn uint32, f *chunkFlags) {
			if theirs := c.ranks[a.To].chunks[a.Stream][psn]; *f&(placed|reading|wanted) != 0 || theirs&placed == 0 {
				w.Failf("rank %d reads PSN %d of stream %d: flags %b here, %b at rank %d", m.rank, psn, a.Stream, *f, theirs, a.To)
			}
			*f |= wanted
		})
		if n := m.claims.Len() + m.fetch.Len() + 1; n > MaxReads {
			w.Failf("rank %d has %d reads in progress", m.rank, n)
		}
		m.claims.Push(readRequest{a.Stream, a.Ranges})
	case step.ActComplete:
		m.checkComplete()
		m.complete = true
	case step.ActClosed:
		if !m.complete {
			w.Failf("rank %d closed before it completed", m.rank)
		}
		m.closed = true
	case step.ActMismatch:
		w.Failf("rank %d says that rank %d made another call", m.rank, a.To)
	case step.ActDigest:
		m.digestAsked++
		m.digest.Push(c.digests[m.rank])
	case step.ActCorrupt:
		c.accused = append(c.accused, [2]int{m.rank, a.To})
	}
}

// from is the queue of messages that a rank sends to m.
func (m *member) from(rank int) *clustertest.Queue[[]byte] {
	if m.inbox[rank] == nil {
		m.inbox[rank] = clustertest.NewQueue(m.c.w.Cluster, "message", m.at, rank, func(b []byte) { m.message(rank, b) })
	}
	return m.inbox[rank]
}

func (m *member) message(from int, b []byte) {
	w := m.c.w
	if !m.started {
		w.Happen(&m.start.Pending) // package node keeps messages for calls that were not made yet
	}
	msg, err := wire.ParseMsg(b)
	if err != nil {
		w.Failf("rank %d to %d: %v", from, m.rank, err)
	}
	if m.closed {
		// The rank knew these already: a chunk that it asked for came late, or all was granted or sent.
		// It would have waited for any other message.
		if msg.Kind != wire.MsgAvail && msg.Kind != wire.MsgMark && msg.Kind != wire.MsgChainSent {
			w.Failf("rank %d sends kind %d to rank %d, which is closed", from, msg.Kind, m.rank)
		}
		return
	}
	if msg.Kind == wire.MsgFinal || msg.Kind == wire.MsgFinalSum {
		m.final = m.final || from == (m.rank+1)%len(m.c.ranks)
	}
	m.step(step.Event{Kind: step.EvMsg, From: from, Msg: &msg})
}

// leave is a chunk that leaves the send buffer, in as many copies as arrive.
func (m *member) leave(d datagram) {
	c := m.c
	_, at, length := c.g.Locate(d.sub, d.psn)
	if m.complete {
		c.w.Failf("rank %d sends from a buffer that it has given back", m.rank)
	}
	d.payload = slices.Clone(c.send[m.rank][at : at+int64(length)])
	c.state[d.sub][d.psn] = left
	m.sent.Push(struct{}{})
	for _, to := range c.ranks {
		if !to.started {
			c.w.Failf("rank %d sends before rank %d is ready", m.rank, to.rank)
		}
		if to == m {
			continue
		}
		if to.grams.Push(d); c.room > 0 && to.grams.Len() > c.room {
			c.w.Failf("%d datagrams wait at rank %d, it has room for %d", to.grams.Len(), to.rank, c.room)
		}
	}
	if c.w.lockstep {
		if c.w.Round("datagram"); d.last {
			c.w.Round("sent")
		}
	}
}

// tellSent tells the Collective that chunks have left. The fabric may tell of several at a time.
func (m *member) tellSent(struct{}) {
	more := m.sent.Len()
	if !m.c.w.lockstep {
		more = m.c.w.Rand.IntN(more + 1)
	}
	for range more {
		m.sent.Take(0)
	}
	n := uint32(more + 1)
	m.told += n
	m.step(step.Event{Kind: step.EvSent, N: n})
}

// datagram is a chunk that arrives at a receive worker.
func (m *member) datagram(d datagram) {
	if m.closed {
		return // the driver has forgotten the Collective
	}
	c := m.c
	in, f := m.intakes[d.sub], &m.chunks[d.sub][d.psn]
	p, psn, off, v := in.Judge(clusterToken, m.op.cfg.Comm, c.w.layout.Imm(m.op.cfg.Seq, d.psn), len(d.payload))
	switch {
	case psn != d.psn:
		c.w.Failf("rank %d takes PSN %d for %d", m.rank, d.psn, psn)
	case v == Placed && (*f&(placed|reading) != 0 || m.complete):
		c.w.Failf("rank %d places PSN %d of subgroup %d: flags %b, complete %v", m.rank, d.psn, d.sub, *f, m.complete)
	case v == Placed:
		if want, _, _ := c.g.Locate(d.sub, d.psn); off != want {
			c.w.Failf("rank %d places PSN %d of subgroup %d at %d, want %d", m.rank, d.psn, d.sub, off, want)
		}
		copy(c.recv[m.rank][off:], d.payload)
		in.Place(p, wire.Range{PSN: psn, N: 1})
		*f |= placed
		m.missing--
	case v == Duplicate && *f&placed == 0, v == Late && *f&(placed|reading) == 0, v == Foreign, v == Stale:
		c.w.Failf("rank %d, PSN %d of subgroup %d: verdict %d, flags %b", m.rank, d.psn, d.sub, v, *f)
	default:
		in.Ignore(p, v, 1)
	}
	if in.Due() {
		m.flush(d.sub)
	}
	if m.grams.Len() == 0 || c.w.lockstep {
		for sub := range m.intakes {
			m.flush(sub)
		}
	}
}

// flush hands over the report of a receive worker. The Collective hears of it later.
func (m *member) flush(sub int) {
	r := m.intakes[sub].Flush()
	if r == nil {
		return
	}
	if m.reports.Push(subReport{sub, r}); m.c.w.lockstep {
		m.c.w.Happen(&m.reports.Pending)
	}
}

// heard is a report that reaches the Collective.
func (m *member) heard(r subReport) {
	if m.closed {
		return
	}
	for _, run := range r.Runs {
		m.each(r.sub, []wire.Range{run.Range}, func(psn uint32, f *chunkFlags) {
			if *f&reported != 0 {
				m.c.w.Failf("rank %d: PSN %d of subgroup %d is reported twice", m.rank, psn, r.sub)
			}
			*f |= reported
			m.unknown--
		})
		m.do(m.op.Placed(m.c.w.Now, r.sub, run.Range, nil))
	}
	if r.Ignored.Late > 0 {
		m.op.cfg.Est.Late(m.c.w.Now)
	}
}

// claim is a receive worker that claims chunks for a read.
func (m *member) claim(r readRequest) {
	won, busy := m.intakes[r.sub].Claim(m.op.arrived[r.sub].Placement, r.ranges, nil)
	if busy {
		m.c.w.Failf("rank %d: a claim finds another writer", m.rank)
	}
	m.each(r.sub, r.ranges, func(_ uint32, f *chunkFlags) { *f &^= wanted })
	m.each(r.sub, won, func(psn uint32, f *chunkFlags) {
		if *f&(placed|reading) != 0 {
			m.c.w.Failf("rank %d claims PSN %d of subgroup %d: flags %b", m.rank, psn, r.sub, *f)
		}
		*f |= reading
	})
	m.flush(r.sub)
	m.fetch.Push(readRequest{r.sub, won})
}

// read carries out a one-sided read.
func (m *member) read(r readRequest) {
	c := m.c
	from := c.ranks[m.op.left]
	for _, q := range r.ranges {
		if from.complete || m.complete {
			c.w.Failf("rank %d reads from rank %d: one of them has given its buffer back", m.rank, from.rank)
		}
		off, length := c.g.Span(r.sub, q.PSN, q.N)
		copy(c.recv[m.rank][off:off+length], c.recv[from.rank][off:off+length])
		m.op.arrived[r.sub].Finish(q.PSN, q.N)
	}
	m.each(r.sub, r.ranges, func(psn uint32, f *chunkFlags) {
		*f = *f&^reading | placed | reported
		m.missing--
		m.unknown--
		if c.g.Owner(r.sub, psn) == from.rank {
			if c.reads[r.sub][psn]++; c.reads[r.sub][psn] > 1 {
				c.w.Failf("PSN %d of subgroup %d was read %d times from its owner", psn, r.sub, c.reads[r.sub][psn])
			}
		}
	})
	m.step(step.Event{Kind: step.EvRead, Stream: r.sub, Ranges: r.ranges})
}

// each calls f with the flags of some chunks.
func (m *member) each(sub int, ranges []wire.Range, f func(psn uint32, f *chunkFlags)) {
	for _, q := range ranges {
		for psn := q.PSN; psn < q.PSN+q.N; psn++ {
			f(psn, &m.chunks[sub][psn])
		}
	}
}
