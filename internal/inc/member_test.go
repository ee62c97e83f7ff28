package inc

import (
	"bytes"
	"slices"

	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// startNext starts the next operation, if there is one.
func (m *member) startNext() {
	w := m.w
	m.cur++
	if m.cur == len(w.ops) {
		m.op = nil
		return
	}
	x := w.ops[m.cur]
	if x.began == 0 {
		x.began = w.now
	}
	width := x.widths[m.rank]
	if m.lost {
		width = 0
	}
	m.out, m.completed, m.timer = make([]byte, x.counts[m.rank]), false, step.Never
	m.op = New(Config{
		Reduction: &Reduction{
			Rank: m.rank, Size: len(w.ranks), Kind: wire.ReduceScatter, Counts: x.counts, Chunk: x.chunk,
			Tree: w.tree.Digest(),
		},
		Comm: 9, Seq: uint64(m.cur), Window: width, Batch: w.batch,
		Alpha:  func() step.Time { return w.alpha },
		Limits: Limits{Tries: 4, Silent: w.silent}, Answers: m.answers,
	})
	m.step(step.Event{Kind: step.EvStart})
}

func (m *member) loseAggregators() {
	m.lost = true
	if m.op != nil && m.op.Phase() < step.Closed {
		m.act(m.op.Lost(m.w.now, nil))
	}
}

func (m *member) step(ev step.Event) { m.act(m.op.Step(m.w.now, ev, nil)) }

// act carries out the actions of the Op.
func (m *member) act(acts []step.Action) {
	w, op, cur := m.w, m.op, m.cur
	for i := range acts {
		a := &acts[i]
		switch a.Kind {
		case step.ActSend:
			w.message(m, a)
		case step.ActReduce:
			m.contribute(a)
		case step.ActFetch:
			m.fetch(a)
		case step.ActComplete:
			m.complete()
		case step.ActClosed:
			if i != len(acts)-1 {
				w.fatalf("rank %d acts after it closed", m.rank)
			}
			w.atRank(w.now+step.Time(w.rand.Int64N(int64(trip))), m.rank, m.startNext)
		default:
			w.fatalf("rank %d: action %d", m.rank, a.Kind)
		}
	}
	if at := op.Timer(); at <= w.now {
		w.fatalf("rank %d: timer at %d, now %d", m.rank, at, w.now)
	} else if at != step.Never && (at < m.timer || m.timer <= w.now) {
		m.timer = at
		w.atRank(at, m.rank, func() {
			if m.cur == cur && m.timer == at && op.Phase() < step.Closed {
				m.timers++
				m.timer = step.Never
				m.step(step.Event{Kind: step.EvTimer})
			}
		})
	}
}

// message sends a reliable message.
func (w *world) message(m *member, a *step.Action) {
	if a.To == m.rank || a.To < 0 || a.To >= len(w.ranks) || a.Msg.Comm != 9 || a.Msg.Seq != uint64(m.cur) {
		w.fatalf("rank %d sends %+v to %d", m.rank, a.Msg, a.To)
	}
	b := wire.AppendMsg(nil, &a.Msg)
	msg, err := wire.ParseMsg(b)
	if err != nil || len(b) > wire.MaxMsg {
		w.fatalf("rank %d: %+v: %v", m.rank, a.Msg, err)
	}
	if msg.Kind == wire.MsgIncAsk && int(msg.Rank) == m.rank {
		w.asks++
	}
	key := [2]int{m.rank, a.To}
	at := max(w.fifo[key], w.now+trip+step.Time(w.rand.Int64N(int64(trip))))
	w.fifo[key] = at
	to := w.ranks[a.To]
	var deliver func()
	deliver = func() {
		switch {
		case to.cur < int(msg.Seq): // the driver keeps greetings
			if msg.Kind != wire.MsgReady {
				w.fatalf("rank %d gets %+v before it starts", to.rank, msg)
			}
			w.atRank(w.now+trip, to.rank, deliver)
		case to.cur == int(msg.Seq):
			to.step(step.Event{Kind: step.EvMsg, From: m.rank, Msg: &msg})
		}
	}
	w.atRank(at, to.rank, deliver)
}

// contribute sends contributions as datagrams.
func (m *member) contribute(a *step.Action) {
	w, x, cur := m.w, m.w.ops[m.cur], m.cur
	if a.N == 0 || a.N > w.batch || uint64(a.PSN)+uint64(a.N) > uint64(x.layout.Places()) {
		w.fatalf("rank %d sends places %d+%d of %d", m.rank, a.PSN, a.N, x.layout.Places())
	}
	at := max(w.now, m.linkFree)
	node, child := w.tree.Server(m.rank)
	for p := a.PSN; p < a.PSN+a.N; p++ {
		owner, _, off, n := x.layout.At(p)
		if owner == m.rank {
			continue
		}
		at += w.gap
		h := contribution(9, x.number, p, owner, child, a.Try)
		h.Type, h.Reduce = uint8(x.typ), uint8(x.op)
		if a.Offer {
			h.Kind, n = Offer, 0
			w.offers++
		}
		w.datagram(at, &gram{m.rank, -1 - node, *h, x.inputs[m.rank][off : off+n]})
	}
	m.linkFree = at
	w.atRank(at, m.rank, func() {
		if m.completed && m.cur == cur {
			w.fatalf("rank %d completed with contributions in flight", m.rank)
		}
		m.step(step.Event{Kind: step.EvSent, N: a.N})
	})
}

// datagram sends a datagram over one hop.
func (w *world) datagram(at step.Time, g *gram) {
	key := link{g.from, g.to, g.Kind, g.Number, g.Place, g.Try}
	if w.links[key]++; w.links[key] > 1 && w.faults.crash == nil && g.Kind != Want { // offers may arrive twice
		w.fatalf("%d sends place %d to %d twice in try %d", g.from, g.Place, g.to, g.Try)
	}
	if w.faults.drop != nil && w.faults.drop(g) || w.rand.Float64() < w.faults.loss {
		return
	}
	copies := 1
	for w.rand.Float64() < w.faults.dup {
		copies++
	}
	for range copies {
		late := step.Time(0)
		if w.faults.jitter > 0 && w.rand.IntN(8) == 0 {
			late = step.Time(w.rand.Int64N(int64(w.faults.jitter)))
		}
		if g.to < 0 {
			w.at(at+hop+late, func() { w.nodes[-1-g.to].handle(w, g) })
		} else {
			w.atRank(at+hop+late, g.to, func() { w.ranks[g.to].result(g) })
		}
	}
}

// handle gives a contribution to an aggregator, and checks that its slot was free.
func (a *aggregator) handle(w *world, g *gram) {
	if d, ok := w.faults.dead[a.node]; ok && w.now >= step.Second+d[0] && w.now < step.Second+d[1] {
		a.restart = w.faults.crash[a.node]
		return
	}
	if a.restart {
		a.restart = false
		a.session = NewSession(a.session.cfg)
	}
	f, ok := a.session.Contribute(&g.Header, g.payload)
	if s := a.session; s.stats.Forged+s.stats.Malformed > 0 || s.Memory() > s.cfg.MaxMemory() {
		w.fatalf("aggregator %d: %+v, %d bytes", a.node, s.stats, s.Memory())
	}
	a.checkSlot(w, &g.Header)
	if !ok {
		return
	}
	to := -1 - w.tree.Nodes[a.node].Parent
	switch f.Kind {
	case Result:
		to = int(f.Owner)
	case Want:
		to = w.tree.Nodes[a.node].Children[f.Child].Rank
	}
	w.datagram(w.now+w.gap, &gram{-1 - a.node, to, f.Header, bytes.Clone(f.Payload)})
}

// checkSlot checks that a slot never holds place k while an owner misses place k-W, or an older operation runs.
func (a *aggregator) checkSlot(w *world, h *Header) {
	c := a.session.comms[h.Comm]
	x := &c.slots[h.Place%w.window]
	if !x.used {
		return
	}
	cur := int(x.number + 2)
	for _, m := range w.ranks {
		if m.cur < cur-1 || m.cur == cur-1 && m.op.repair.have < m.op.chunks {
			w.fatalf("aggregator %d holds place %d of operation %d, which rank %d has not reached", a.node, x.place, cur, m.rank)
		}
	}
	if x.place < w.window {
		return
	}
	owner, nth, _, _ := w.ops[cur].layout.At(x.place - w.window)
	if m := w.ranks[owner]; m.cur < cur || m.cur == cur && !m.op.Record().InPlace(nth) {
		w.fatalf("aggregator %d holds place %d, but rank %d misses place %d", a.node, x.place, owner, x.place-w.window)
	}
}

// wanted answers an aggregator that misses a contribution.
func (m *member) wanted(g *gram) {
	if m.cur >= 0 && m.cur < len(m.w.ops) && m.w.ops[m.cur].number == g.Number && m.op.Phase() < step.Closed {
		m.act(m.op.Wanted(m.w.now, g.Place, g.Try, nil))
	}
}

// result places a sum that arrives at its owner.
func (m *member) result(g *gram) {
	w := m.w
	if g.Kind == Want {
		m.wanted(g)
		return
	}
	if g.Kind != Result || int(g.Owner) != m.rank {
		w.fatalf("rank %d gets %+v", m.rank, g.Header)
	}
	if m.cur >= len(w.ops) || m.cur < 0 || w.ops[m.cur].number != g.Number || m.op.Phase() >= step.Closed {
		return // of an operation that has ended
	}
	x, cur := w.ops[m.cur], m.cur
	owner, nth, off, n := x.layout.At(g.Place)
	if owner != m.rank || n != int64(len(g.payload)) {
		w.fatalf("rank %d gets a sum of %d bytes for place %d", m.rank, len(g.payload), g.Place)
	}
	if !m.op.Record().Take(nth) {
		return
	}
	m.place(x, g.payload, nth, off)
	m.op.Record().Finish(nth, 1)
	w.atRank(w.now+step.Time(w.rand.Int64N(int64(10*step.Microsecond))), m.rank, func() {
		if m.cur == cur && m.op.Phase() < step.Closed {
			m.act(m.op.Summed(w.now, nil))
		}
	})
}

// place adds this rank's contribution to a sum.
func (m *member) place(x *operation, sum []byte, nth uint32, off int64) {
	dst := m.out[int64(nth)*int64(x.chunk):][:len(sum)]
	copy(dst, sum)
	if err := reduce.Into(dst, x.inputs[m.rank][off:off+int64(len(sum))], x.typ, x.op); err != nil {
		m.w.fatalf("%v", err)
	}
}

// fetch reads the contributions of all ranks.
func (m *member) fetch(a *step.Action) {
	w, x, cur, op := m.w, m.w.ops[m.cur], m.cur, m.op
	if a.N == 0 || uint64(a.PSN)+uint64(a.N) > uint64(x.layout.Chunks(m.rank)) {
		w.fatalf("rank %d fetches chunks %d+%d of %d", m.rank, a.PSN, a.N, x.layout.Chunks(m.rank))
	}
	var won []uint32
	w.atRank(w.now+hop, m.rank, func() { // the receive worker claims
		op.Record().Claim(a.PSN, a.N, func(i, n uint32) {
			for ; n > 0; i, n = i+1, n-1 {
				won = append(won, i)
			}
		})
		at := w.now + 2*trip + step.Time(int64(a.N)*int64(len(w.ranks)))*w.gap
		for rank := range w.ranks { // stopped ranks do not answer
			if p, ok := w.faults.pauses[rank]; ok && at >= p[0] && at < p[1] {
				at = p[1] + trip
			}
		}
		w.atRank(at, m.rank, func() {
			for _, other := range w.ranks {
				if other.completed && other.cur == cur || other.cur > cur {
					w.fatalf("rank %d reads the input of rank %d, which has completed", m.rank, other.rank)
				}
			}
			for _, nth := range won {
				_, _, off, n := x.layout.At(x.layout.Place(m.rank, nth))
				w.fetches++
				copy(m.out[int64(nth)*int64(x.chunk):], w.sum(x, m.rank, off, n))
				op.Record().Finish(nth, 1)
			}
			m.step(step.Event{Kind: step.EvFetched, Ranges: []wire.Range{{PSN: a.PSN, N: a.N}}})
		})
	})
}

// complete checks the result.
func (m *member) complete() {
	w, x := m.w, m.w.ops[m.cur]
	if m.completed {
		w.fatalf("rank %d completes twice", m.rank)
	}
	m.completed, m.answers = true, m.op.Answers()
	x.done++
	w.ended = w.now
	w.results[m.cur][m.rank] = m.out
	if m.op.FellBack() {
		w.fallbacks++
	}
	if len(w.ranks) > 1 && !bytes.Equal(m.out, x.want[m.rank]) {
		w.fatalf("rank %d has the wrong sum in operation %d:\n%x, want\n%x", m.rank, m.cur, m.out, x.want[m.rank])
	}
	if w.faults.loss == 0 && w.faults.jitter == 0 && w.faults.quiet() && !slices.Contains(x.widths, 0) && m.op.FellBack() {
		w.fatalf("rank %d fell back", m.rank)
	}
}

// quiet reports whether nothing fails.
func (f *faults) quiet() bool {
	return f.drop == nil && f.dead == nil && f.noticed == nil && f.pauses == nil && f.slow == nil
}
