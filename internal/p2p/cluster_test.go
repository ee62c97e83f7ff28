package p2p_test

import (
	"fmt"
	"slices"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// forever is more events than any run has.
const forever = 1 << 40

// A cluster runs the Executors of all ranks. Messages between two ranks arrive in order, and so do
// pieces; everything else arrives in any order. A piece is read from the buffer when it departs, which
// may be long after the Executor handed it over. The Executor hears of the departure later still.
type cluster[T any] struct {
	*clustertest.Cluster
	ranks []*member[T]
	add   func(have, came T) T
	loose bool // whether pieces between two ranks overtake each other

	mismatches []step.Action
	early      int // ranks that completed before all had started
}

// member is one rank: its Executor and the state of its driver.
type member[T any] struct {
	clustertest.Untimed
	c    *cluster[T]
	at   *clustertest.Rank
	plan *p2p.Plan
	op   *p2p.Executor
	in   *p2p.Inbox
	buf  []T
	kept map[int][]T // by receive: pieces that came before their turn

	started, complete, closed bool

	start *clustertest.Queue[struct{}]
	heard *clustertest.Queue[struct{}] // departures that the Executor has not heard of
	peers []link[T]
}

// link holds the events between a member and one peer.
type link[T any] struct {
	messages *clustertest.Queue[wire.Msg] // from the peer
	pieces   *clustertest.Queue[piece[T]] // from the peer
	departs  *clustertest.Queue[span]     // to the peer
}

// span is a piece in the buffer of its sender.
type span struct {
	nth      uint32
	off, len int64
	parts    []wire.Span
}

// copyWithin carries out the copies of a plan.
func copyWithin[T any](buf []T, copies []p2p.Copy) {
	for _, c := range copies {
		copy(buf[c.To:c.To+c.Len], buf[c.From:c.From+c.Len])
	}
}

type piece[T any] struct {
	nth  uint32
	data []T
}

func newCluster[T any](
	t clustertest.TB, subject any, seed uint64, plans []*p2p.Plan, bufs [][]T, add func(have, came T) T,
) *cluster[T] {
	c := &cluster[T]{Cluster: clustertest.New(t, seed), add: add}
	c.Subject = subject
	c.Order = schedules[c.Rand.IntN(len(schedules))].order(c.Rand, len(plans))
	for r, plan := range plans {
		m := &member[T]{
			c: c, plan: plan, op: p2p.NewExecutor(p2p.Config{Plan: plan, Comm: 3, Seq: 7}), in: p2p.NewInbox(plan),
			buf: bufs[r], kept: map[int][]T{}, peers: make([]link[T], len(plans)),
		}
		m.buf = append(m.buf, make([]T, plan.Scratch)...)
		copyWithin(m.buf, plan.Before)
		m.at = c.Add(r, m)
		c.ranks = append(c.ranks, m)
		m.start = clustertest.NewQueue(c.Cluster, "start", m.at, r, func(struct{}) {
			m.started = true
			m.step(step.Event{Kind: step.EvStart})
		})
		m.start.Push(struct{}{})
		m.heard = clustertest.NewQueue(c.Cluster, "heard", m.at, r, func(struct{}) {
			// The fabric may tell of several departures at once.
			n := c.Rand.IntN(m.heard.Len() + 1)
			for range n {
				m.heard.Take(0)
			}
			m.step(step.Event{Kind: step.EvSent, N: uint32(1 + n)})
		})
	}
	return c
}

// link returns the events between m and a peer.
func (m *member[T]) link(peer int) *link[T] {
	l, c := &m.peers[peer], m.c.Cluster
	if l.messages == nil {
		l.messages = clustertest.NewQueue(c, "message", m.at, peer, func(msg wire.Msg) {
			m.step(step.Event{Kind: step.EvMsg, From: peer, Msg: &msg})
		})
		l.pieces = clustertest.NewQueue(c, "arrive", m.at, peer, func(p piece[T]) { m.arrives(peer, p) })
		l.departs = clustertest.NewQueue(c, "depart", m.at, peer, func(s span) {
			if m.complete {
				c.Failf("rank %d sends from a buffer that is free", m.at.ID)
			}
			m.heard.Push(struct{}{})
			to := m.c.ranks[peer].link(m.at.ID)
			to.pieces.Push(piece[T]{s.nth, clustertest.Gather(m.buf, s.off, s.len, s.parts)})
		})
		if m.c.loose {
			l.pieces.Faults.Reorder = 1
		}
	}
	return l
}

func (m *member[T]) step(ev step.Event) { m.act(m.op.Step(m.c.Now, ev, nil)) }

func (m *member[T]) arrives(from int, p piece[T]) {
	c, to, recvs := m.c, m.at.ID, m.plan.Recvs
	if m.complete {
		c.Failf("rank %d gets data after its buffer was free", to)
	}
	length := int64(len(p.data))
	acts, ok := deliver(m.op, m.in, c.Now, from, p.nth, length, func(i int, r *p2p.Recv, hold bool) {
		switch {
		case *r != recvs[i] || int(r.From) != from:
			c.Failf("rank %d takes piece %d of rank %d, %d long, as %+v", to, p.nth, from, length, *r)
		case hold:
			m.kept[i] = p.data
		default:
			m.place(r, p.data)
		}
	}, func(i int) {
		data, kept := m.kept[i]
		if !kept || int64(len(data)) != recvs[i].Len {
			c.Failf("rank %d applies receive %d, which it does not hold", to, i)
		}
		delete(m.kept, i)
		m.place(&recvs[i], data)
	})
	if !ok {
		c.Failf("rank %d does not take piece %d of rank %d, %d long", to, p.nth, from, length)
	}
	m.act(acts)
}

func (m *member[T]) place(r *p2p.Recv, data []T) {
	buf := m.buf[r.Off : r.Off+int64(len(data))]
	if r.Apart {
		copy(buf, m.buf[r.Base:])
	}
	if !r.Reduce {
		copy(buf, data)
		return
	}
	for i, x := range data {
		buf[i] = m.c.add(buf[i], x)
	}
}

func (m *member[T]) act(acts []step.Action) {
	c, rank := m.c, m.at.ID
	for _, a := range acts {
		switch a.Kind {
		case step.ActSend:
			c.ranks[a.To].link(rank).messages.Push(a.Msg)
		case step.ActPut:
			m.link(a.To).departs.Push(span{a.PSN, a.Off, a.Len, a.Parts})
		case step.ActMismatch:
			c.mismatches = append(c.mismatches, a)
		case step.ActComplete:
			if m.complete || m.closed {
				c.Failf("rank %d completes twice", rank)
			}
			m.complete = true
			copyWithin(m.buf, m.plan.After)
			if slices.ContainsFunc(c.ranks, func(m *member[T]) bool { return !m.started }) {
				c.early++
			}
		case step.ActClosed:
			if !m.complete || m.closed {
				c.Failf("rank %d closes twice, or before it completes", rank)
			}
			m.closed = true
		default:
			c.Failf("rank %d: unexpected action %d", rank, a.Kind)
		}
	}
}

func (m *member[T]) Done() bool { return m.closed }

func (m *member[T]) String() string {
	return fmt.Sprintf("%v, waits for rank %d, misses %s", m.op.Phase(), m.op.WaitingOn(), m.op.Missing(nil))
}

// finish runs to the end and fails the test unless all went well.
func (c *cluster[T]) finish() {
	c.Drain(forever)
	for _, a := range c.mismatches {
		c.Failf("a mismatch with rank %d: %+v", a.To, a.Msg.Call)
	}
	for r, m := range c.ranks {
		if !m.complete || !m.closed || m.op.Phase() != step.Closed {
			c.Failf("rank %d does not end", r)
		}
		if f := m.in.Foreign(); f != 0 {
			c.Failf("rank %d counts %d foreign pieces", r, f)
		}
	}
}

// deliver hands a piece to the Inbox of a rank as a driver does, and tells its Executor. It calls take
// with the receive and whether the piece must be held, then apply with each held receive whose turn has
// come. It reports false if the rank does not expect the piece.
func deliver(
	op *p2p.Executor, in *p2p.Inbox, now step.Time, from int, nth uint32, length int64,
	take func(i int, r *p2p.Recv, hold bool), apply func(i int),
) (acts []step.Action, ok bool) {
	i, r, hold, ok := in.Take(from, nth, length)
	if !ok {
		return nil, false
	}
	take(i, r, hold)
	in.Arrived(i)
	for i := in.Next(); i >= 0; i = in.Next() {
		apply(i)
		in.Arrived(i)
	}
	prefix, left := in.Progress()
	return op.Received(now, prefix, left, nil), true
}
