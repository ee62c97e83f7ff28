package mcast

import (
	"fmt"
	"strings"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// run lets things happen until all operations are closed on all their ranks.
func (w *world) run(cs ...*cluster) {
	most := 10_000
	for _, c := range cs {
		most += 400 * c.g.Size() * (20 + int(c.g.Chunks()))
	}
	var busy []*cluster
	for range most {
		open := 0
		busy = busy[:0]
		for _, c := range cs {
			open += c.open
			if len(c.ready) > 0 {
				busy = append(busy, c)
			}
		}
		switch {
		case open == 0 && len(busy) == 0:
			for _, c := range cs {
				c.verify()
			}
			return
		case len(busy) == 0:
			w.idle(cs)
			continue
		}
		c := busy[w.rng.IntN(len(busy))]
		l := c.ready[w.rng.IntN(len(c.ready))]
		w.now += step.Time(w.rng.Int64N(int64(w.tick) + 1))
		if c.room > 0 {
			c.keepUp()
		}
		if len(l.items) == 0 || l.at.rank == w.slow && (!w.deaf || l.kind == laneGram) && w.rng.IntN(50) != 0 {
			continue
		}
		c.happen(l)
		if !w.calm {
			c.tick(l.at)
			c.tick(c.ranks[w.rng.IntN(len(c.ranks))])
		}
	}
	w.t.Fatalf("no end after %d events:\n%s", most, dump(cs))
}

// keepUp lets workers that have datagrams waiting take one within alpha: slow,
// but not stopped. Credit rests on that (see credit.go).
func (c *cluster) keepUp() {
	for _, m := range c.ranks {
		if l := &m.grams; len(l.items) > 0 && c.w.now >= l.since+m.op.cfg.Est.Alpha()/2 {
			c.happen(l)
		}
	}
}

// idle lets time pass until the next timer.
func (w *world) idle(cs []*cluster) {
	at := step.Never
	var who *member
	var in *cluster
	for _, c := range cs {
		for _, m := range c.ranks {
			if due := m.op.Timer(); !m.closed && m.started && due < at {
				at, who, in = due, m, c
			}
		}
	}
	if who == nil {
		w.t.Fatalf("stuck: nothing is pending and nobody has a timer:\n%s", dump(cs))
	}
	w.now = max(w.now, at)
	in.tick(who)
}

// tick fires a rank's timer if it is due.
func (c *cluster) tick(m *member) {
	if m.closed || !m.started || m.op.Timer() > c.w.now {
		return
	}
	if len(m.grams.items) > 0 {
		m.op.Queued(c.w.now)
		if m.op.Timer() > c.w.now {
			return
		}
	}
	acts := c.step(m, step.Event{Kind: step.EvTimer})
	if len(acts) == 0 && m.op.Timer() <= c.w.now {
		c.w.t.Fatalf("rank %d: its timer fires for ever at %d", m.rank, c.w.now)
	}
}

// happen lets the first thing of a lane happen.
func (c *cluster) happen(l *lane) {
	m, i := l.at, 0
	switch l.kind {
	case laneStart:
		c.take(l, 0)
		m.started = true
		c.step(m, step.Event{Kind: step.EvStart})
	case laneMsg:
		if !m.started {
			// Package node keeps messages for calls that were not made yet.
			c.happen(&m.start)
		}
		it := c.take(l, 0)
		msg, err := wire.ParseMsg(it.msg)
		if err != nil {
			c.w.t.Fatalf("rank %d to %d: %v", l.from, m.rank, err)
		}
		if m.closed {
			// What it knew already from elsewhere: the chunk it asked for came late,
			// all was granted, all was sent. Anything else it would have waited for.
			if msg.Kind != wire.MsgAvail && msg.Kind != wire.MsgMark && msg.Kind != wire.MsgChainSent {
				c.w.t.Fatalf("rank %d sends kind %d to rank %d, which is closed", l.from, msg.Kind, m.rank)
			}
			return
		}
		m.final = m.final || (msg.Kind == wire.MsgFinal && l.from == (m.rank+1)%len(c.ranks))
		c.step(m, step.Event{Kind: step.EvMsg, From: l.from, Msg: &msg})
	case laneGram:
		if c.w.rng.Float64() < c.net.reorder {
			i = c.w.rng.IntN(len(l.items))
		}
		it := c.take(l, i)
		if c.w.rng.Float64() < c.net.duplicate {
			c.push(l, it)
		}
		c.datagram(m, it)
	case laneNIC:
		c.leave(m, c.take(l, 0))
	case laneSent:
		// The fabric may tell of several at a time.
		n := uint32(1 + c.w.rng.IntN(len(l.items)))
		for range n {
			c.take(l, 0)
		}
		m.told += n
		c.step(m, step.Event{Kind: step.EvSent, N: n})
	case laneReport:
		c.heard(m, c.take(l, 0))
	case laneClaim:
		c.claim(m, c.take(l, 0))
	case laneRead:
		c.read(m, c.take(l, c.w.rng.IntN(len(l.items))))
	}
}

// leave is a chunk leaving the send buffer, in as many copies as arrive.
func (c *cluster) leave(m *member, it item) {
	_, at, length := c.g.Locate(it.sub, it.psn)
	if m.complete {
		c.w.t.Fatalf("rank %d sends from a buffer that it has given back", m.rank)
	}
	it.payload = append([]byte(nil), c.mem.send[m.rank][at:at+int64(length)]...)
	c.state[it.sub][it.psn] = left
	c.push(&m.sent, item{})
	for _, to := range c.ranks {
		if !to.started {
			c.w.t.Fatalf("rank %d sends before rank %d is ready", m.rank, to.rank)
		}
		if to == m || c.lost(to.rank, it) {
			continue
		}
		if c.push(&to.grams, it); c.room > 0 && len(to.grams.items) > c.room {
			c.w.t.Fatalf("%d datagrams wait at rank %d, it has room for %d", len(to.grams.items), to.rank, c.room)
		}
	}
}

func (c *cluster) lost(to int, it item) bool {
	if c.net.drop != nil {
		return c.net.drop(to, it.sub, it.psn)
	}
	return c.w.rng.Float64() < c.net.loss
}

// dump describes where everybody is, for a failure's sake.
func dump(cs []*cluster) string {
	var b strings.Builder
	for i, c := range cs {
		for _, m := range c.ranks {
			if m.closed {
				continue
			}
			o := m.op
			fmt.Fprintf(&b, "op %d rank %d: %v, waits for %d, sent %d/%d/%d, active %v, missing %s, asked %d, grants own %d consumed %d all %d of %d\n",
				i, m.rank, o.Phase(), o.WaitingOn(), o.snd.done, o.snd.handed, o.snd.total, o.snd.active, o.Missing(nil), o.asked, o.cr.own, o.cr.consumed, o.cr.all, c.g.total)
		}
	}
	return b.String()
}
