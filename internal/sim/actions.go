package sim

import (
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/wire"
)

// execute carries out one action of a node.

func (h *host) execute(a *node.Action) {
	w := h.w
	switch a.Kind {
	case node.Send:
		k := w.pools.packet(pktMessage, classControl, opKey{}, h.id, a.To)
		k.data = wire.AppendMsg(k.data, &a.Msg)
		k.size = int64(len(k.data)) + rcHeader
		h.inject(k)
	case node.Open:
		h.openRound(a)
	case node.Multicast:
		h.multicast(a)
	case node.Read:
		h.read(&read{to: a.To, key: opKey{a.Comm, a.Seq}, stream: a.Stream, ranges: a.Ranges})
	case node.Contribute:
		h.contribute(a)
	case node.Fetch:
		h.fetch(a)
	case node.Put:
		h.sendRange(a)
	case node.Release:
		m := h.regions[opKey{a.Comm, a.Seq}].mem
		m.carryOut(m.after)
		h.revoke(a)
	case node.Quiesce:
		h.revoke(a)
		w.failures++
		h.node.Quiesced(a.Comm, a.Seq)
	case node.Done:
		h.done(a)
	case node.Closed:
		w.lingering--
		delete(h.kept, opKey{a.Comm, a.Seq})
		if w.cfg.Tokens {
			h.node.Drained(ns(w.now), a.Comm, a.Seq)
			break
		}
		w.drains = append(w.drains, drain{host: h.id, key: opKey{a.Comm, a.Seq}})
		w.push(w.now+w.lifetime+32*w.slotTime+w.straggle, evDrain, int32(len(w.drains)-1), nil)
	case node.Digest:
		r := h.regions[opKey{a.Comm, a.Seq}]
		h.node.Digested(ns(w.now), a.Comm, a.Seq, r.mem.digest(a.Geometry))
	case node.Drop:
	}
}

// openRound makes the buffers of a round writable and readable.
func (h *host) openRound(a *node.Action) {
	w, key := h.w, opKey{a.Comm, a.Seq}
	c := w.calls[a.Req]
	rank := c.rankOf(h.id)
	m := c.mem[rank]
	if c.plan == nil || a.Geometry == c.plan[0] {
		m.copyOwn()
	}
	r := &region{mem: m, geo: a.Geometry, placements: a.Placements, inbox: a.Inbox, open: true}
	r.reduction = reduction{layout: a.Layout, record: a.Record, number: a.Number}
	if c.kind == wire.Send && !c.sends(rank) {
		r.base = c.exchange.size(rank, rank^1) // behind the message that the rank sends
	}
	h.regions[key] = r
	h.lastReg = nil
	for _, p := range a.Placements {
		h.worker(p.Stream).Open(w.token(a.Comm, a.Seq, a.Eager), p)
	}
	if a.Eager && a.Placements[0].Own().N > 0 {
		h.kept[key] = &region{mem: m.copy(), geo: a.Geometry, placements: a.Placements, open: true}
	}
	w.lingering++
	h.node.Opened(ns(w.now), a.Comm, a.Seq, false)
	if a.Eager {
		h.recall(key)
	}
	early := h.early[key]
	delete(h.early, key)
	for _, last := range early {
		h.put(last)
	}
}

// revoke takes a round's buffers away from the fabric.
func (h *host) revoke(a *node.Action) {
	key := opKey{a.Comm, a.Seq}
	r := h.regions[key]
	r.open = false
	for _, p := range r.placements {
		h.worker(p.Stream).Close(p)
	}
	for _, held := range r.held {
		h.w.pools.releaseAll(held)
	}
	if r.inbox != nil {
		h.node.Foreign(r.inbox.Foreign())
	}
	delete(h.regions, key)
	h.lastReg = nil
}

func (h *host) inject(k *packet) {
	if k.dst == h.id {
		h.w.violate("rank %d sent to itself", h.id)
		h.w.pools.release(k)
		return
	}
	h.w.enqueue(&h.w.links[h.w.g.HostUp(h.id)], k, nil)
}

func (h *host) multicast(a *node.Action) {
	w, key := h.w, opKey{a.Comm, a.Seq}
	r, tag := h.regions[key], uint32(0)
	if a.Eager {
		r = h.kept[key]
		tag = r.geo.Tag()
	}
	for i := range a.N {
		k := w.pools.packet(pktChunk, classBulk, key, h.id, -1)
		k.n, k.last = a.N, i == a.N-1
		k.tree = w.trees[r.geo.Subgroup(a.Stream)%len(w.trees)]
		k.imm = w.layout.Imm(a.Seq, tag|(a.PSN+i))
		k.token = w.token(a.Comm, a.Seq, a.Eager)
		w.locate(k, r, a.Stream, a.PSN+i, udHeader)
		h.inject(k)
	}
}

// sendRange sends a range of the buffer to one rank.
func (h *host) sendRange(a *node.Action) {
	h.packetize(a, pktPut, func(k *packet, c *collective) {
		k.dst, k.psn, k.all, k.input = a.To, a.PSN, a.Len, a.Input
		if k.bytes > 0 && h.w.ownerReads != nil && !c.reduces && !c.packs(a) && k.off < c.total() {
			k.cell = c.cell(k.off)
		}
		h.inject(k)
	})
}

// packs reports whether packets of a piece hold parts of several blocks. Counts per chunk leave them out.
func (c *collective) packs(a *node.Action) bool { return c.exchange != nil || a.Parts != nil }

// packetize cuts a range of the buffer into packets of at most one chunk each. An empty range becomes
// one empty packet.
func (h *host) packetize(a *node.Action, kind packetKind, send func(*packet, *collective)) {
	key := opKey{a.Comm, a.Seq}
	r := h.regions[key]
	c := r.mem.c
	for off, end, more := a.Off, a.Off+a.Len, true; more; {
		k := h.w.pools.packet(kind, classBulk, key, h.id, -1)
		k.n, k.off, k.parts, k.from = 1, off, a.Parts, r
		switch {
		case off == end:
		case c.packs(a):
			k.bytes = int(min(c.chunk, end-off))
		default:
			k.bytes = int(min(r.mem.layout.chunkEnd(off), end) - off)
		}
		k.size = int64(k.bytes) + putHeader
		off += int64(k.bytes)
		more = off < end
		k.last = !more
		send(k, c)
	}
}

// startSending is called when the NIC starts to send a packet, and reads the payload. It returns false
// if the packet must not be sent any more.
func (w *world) startSending(id int, k *packet) bool {
	h := w.hosts[id]
	if h.dead {
		return false
	}
	if k.from != nil {
		if !k.from.open {
			if w.failures == 0 {
				w.violate("rank %d sent from a buffer that was free", id)
			}
			return false
		}
		if k.bytes > 0 {
			k.from.countSent(k)
			k.from.mem.load(k)
		}
	}
	h.sent += k.size
	k.born = w.now
	w.capture(k)
	return true
}

// done handles the end of a call on this rank, which may have another message to send or to receive.
func (h *host) done(a *node.Action) {
	c := h.w.calls[a.Req]
	if o := &c.ranks[c.rankOf(h.id)]; c.kind == wire.Send && a.Err == nil && !o.half {
		o.half = true
		h.start(c)
		return
	}
	h.ended(c, outcome{err: a.Err, spent: a.Spent, fallback: a.Fallback})
}

// ended records the end of a call on this rank and takes its buffers away.
func (h *host) ended(c *collective, o outcome) {
	w := h.w
	rank := c.rankOf(h.id)
	m := c.mem[rank]
	if o.err == nil && !m.verify() {
		w.wrong++
	}
	m.poison()
	o.ended, o.at = true, w.now
	c.ranks[rank] = o
	c.ended++
	w.pending--
	if o.err != nil {
		c.failed = true
		w.failures++
	}
	if w.step != nil {
		w.step.callReturned(h.id, c)
	}
}

// locate makes a packet carry a chunk of a multicast round. Accounting covers a single call only.
func (w *world) locate(k *packet, r *region, stream int, psn uint32, header int64) {
	k.stream, k.psn, k.from = stream, psn, r
	k.off, _, k.bytes = r.geo.Locate(stream, psn)
	k.size = int64(k.bytes) + header
	if w.ownerReads != nil {
		k.cell = r.mem.c.cell(k.off)
	}
}
