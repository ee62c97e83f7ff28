package node

import (
	"slices"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

// incChunk is what the network of a planCluster adds up at a time.
const incChunk = 4

func (h *planHost) act() {
	for acts := h.node.Actions(); len(acts) > 0; acts = h.node.Actions() {
		for i := range acts {
			h.do(acts[i])
		}
	}
}

func (h *planHost) do(a Action) {
	c, key := h.c, opKey{a.Comm, a.Seq}
	switch a.Kind {
	case Send:
		b := wire.AppendMsg(nil, &a.Msg)
		c.later("message", h.id, a.To, func() {
			m, err := wire.ParseMsg(b)
			if err != nil {
				c.t.Fatal(err)
			}
			c.nodes[a.To].node.Message(c.now, h.id, &m)
			c.nodes[a.To].act()
		})
	case Open:
		h.open[key], h.in[key] = c.calls[a.Req].shares[h.id], a.Inbox
		h.node.Opened(c.now, a.Comm, a.Seq, false)
		for _, f := range h.early[key] {
			c.later("recall", h.id, h.id, f)
		}
		delete(h.early, key)
	case Put:
		s := h.share(key)
		// The piece is read from the buffer when it leaves, not when it is handed over.
		c.later("nic", h.id, h.id, func() {
			if h.open[key] != s {
				return // it failed meanwhile
			}
			payload := append([]byte(nil), s.buf[a.Off:a.Off+a.Len]...)
			c.later("piece", h.id, a.To, func() { c.nodes[a.To].piece(h.id, key, a.PSN, payload) })
			h.node.Sent(c.now, a.Comm, a.Seq, 1)
			h.act()
		})
	case Reduce:
		h.reduce(a)
	case Release:
		h.share(key)
		h.forget(key)
	case Quiesce:
		c.hurt = true
		h.share(key)
		h.forget(key)
		c.later("quiet", h.id, h.id, func() { h.node.Quiesced(a.Comm, a.Seq); h.act() })
	case Closed:
		c.later("drain", h.id, h.id, func() { h.node.Drained(c.now, a.Comm, a.Seq); h.act() })
	case Done:
		h.done(a)
	case Drop:
		if !c.nodes[a.To].dead {
			c.t.Fatalf("rank %d takes rank %d for lost, which lives", h.id, a.To)
		}
	default: // multicasts of calls that no test lets come so far
		c.t.Fatalf("rank %d: action %d", h.id, a.Kind)
	}
}

// share is an operation that must be open.
func (h *planHost) share(key opKey) *planShare {
	s := h.open[key]
	if s == nil {
		h.c.t.Fatalf("rank %d: operation %+v is not open", h.id, key)
	}
	return s
}

func (h *planHost) forget(key opKey) {
	if in := h.in[key]; in != nil {
		h.node.Foreign(in.Foreign())
	}
	delete(h.open, key)
	delete(h.in, key)
}

// piece is a Put that has arrived.
func (h *planHost) piece(from int, key opKey, nth uint32, payload []byte) {
	if h.open[key] == nil && h.node.Early(from, key.comm, key.seq, int64(len(payload))) {
		h.early[key] = append(h.early[key], func() { h.piece(from, key, nth, payload) })
		h.most = max(h.most, len(h.early))
		return
	}
	h.node.Heard(h.c.now, from)
	if !h.takes(from, key, nth, payload) && !h.c.hurt {
		h.c.t.Fatalf("rank %d does not take piece %d of rank %d", h.id, nth, from)
	}
	h.act()
}

// takes places, adds or keeps a piece, and reports whether it was expected.
func (h *planHost) takes(from int, key opKey, nth uint32, payload []byte) bool {
	in := h.in[key]
	if in == nil {
		return false
	}
	rank := slices.Index(h.c.comms[key.comm], from)
	i, r, hold, ok := in.Take(rank, nth, int64(len(payload)))
	if !ok {
		return false
	}
	buf := h.share(key).buf
	switch {
	case hold:
		h.held[heldKey{key, i}] = payload
	case r.Reduce:
		add(buf[r.Off:], payload)
	default:
		copy(buf[r.Off:], payload)
	}
	in.Arrived(i)
	for i := in.Next(); i >= 0; i = in.Next() {
		k := heldKey{key, i}
		add(buf[h.share(key).plan.Recvs[i].Off:], h.held[k])
		delete(h.held, k)
		in.Arrived(i)
	}
	prefix, left := in.Progress()
	h.node.Pieces(h.c.now, from, key.comm, key.seq, prefix, left)
	return true
}

func add(to, from []byte) {
	for i, x := range from {
		to[i] += x
	}
}

// reduce is a chunk going up; when the last contribution is there, the sum comes
// down to whom it belongs.
func (h *planHost) reduce(a Action) {
	c, key := h.c, opKey{a.Comm, a.Seq}
	s := h.share(key)
	c.later("nic", h.id, h.id, func() {
		if h.open[key] != s {
			return
		}
		payload := append([]byte(nil), s.buf[a.Off:a.Off+a.Len]...)
		c.later("up", h.id, -1, func() { c.addUp(s.call, key, a.Off, payload) })
		h.node.Sent(c.now, a.Comm, a.Seq, 1)
		h.act()
	})
}

func (c *planCluster) addUp(k *planCall, key opKey, off int64, payload []byte) {
	if c.sums[key] == nil {
		c.sums[key] = map[int64]*planSum{}
	}
	lo, hi, owner := k.blockAt(off)
	s := c.sums[key][off]
	if s == nil {
		s = &planSum{data: make([]byte, min(hi-off, incChunk))}
		c.sums[key][off] = s
	}
	add(s.data, payload)
	want := k.spec.Size
	if k.spec.Kind == p2p.ReduceScatter && off > lo {
		want-- // the owner adds its own locally
	}
	if s.have++; s.have < want {
		return
	}
	down := func() {
		for r, m := range c.comms[k.comm] {
			if k.spec.Kind == p2p.Allreduce || r == owner {
				c.later("result", -1, m, func() { c.nodes[m].result(key, off, s.data) })
			}
		}
	}
	// An owner that has not sent its first chunk is not ready to receive.
	first := c.sums[key][lo]
	switch {
	case k.spec.Kind == p2p.Allreduce || (first != nil && first.have == k.spec.Size):
		down()
		for _, f := range s.after {
			f()
		}
	case first == nil:
		c.t.Fatalf("a chunk at %d goes up before its block's first", off)
	default:
		first.after = append(first.after, down)
	}
}

// blockAt is where the block at an offset begins and ends, and whose it is.
func (k *planCall) blockAt(off int64) (lo, hi int64, owner int) {
	if k.spec.Kind == p2p.Allreduce {
		return 0, k.bytes(), -1
	}
	for r := range k.spec.Counts {
		if lo, hi = k.block(r); off < hi {
			return lo, hi, r
		}
	}
	return lo, hi, -1
}

func (h *planHost) result(key opKey, off int64, sum []byte) {
	if h.node.Result(h.c.now, key.comm, key.seq, off, int64(len(sum))) {
		s := h.share(key)
		if s.call.spec.Kind == p2p.ReduceScatter {
			add(s.buf[off:], sum)
		} else {
			copy(s.buf[off:], sum)
		}
	} else if !h.c.hurt {
		h.c.t.Fatalf("rank %d does not take the sum at %d", h.id, off)
	}
	h.act()
}

func (h *planHost) done(a Action) {
	s := h.c.calls[a.Req].shares[h.id]
	if s == nil || s.ended {
		h.c.t.Fatalf("rank %d: request %d ends, and is not under way", h.id, a.Req)
	}
	s.ended, s.err = true, a.Err
	if a.Err == nil && !s.call.right(s.rank, s.buf) {
		h.c.t.Fatalf("rank %d: %s %v ends with wrong data", h.id, s.call.algo, s.call.spec.Kind)
	}
	poison(s.buf)
}
