package sim

// datagram decides the fate of a multicast datagram at this receiver.
func (h *host) datagram(k *packet) {
	w := h.w
	if p := w.loss; w.now-k.born > w.lifetime || (p > 0 && w.rng.Float64() < p) {
		w.dropped++
		w.pools.release(k)
		return
	}
	if w.cfg.Duplicate > 0 && w.rng.Float64() < w.cfg.Duplicate {
		k.refs++
		w.push(w.now+w.places(), evDeliver, int32(h.id), k)
	}
	if w.cfg.Reorder > 0 && w.rng.Float64() < w.cfg.Reorder {
		w.push(w.now+w.places(), evDeliver, int32(h.id), k)
		return
	}
	h.receive(k)
}

// receive queues a datagram for the receive worker.
func (h *host) receive(k *packet) {
	w := h.w
	if w.recvCost == 0 && w.now >= h.stalled && h.datagrams.len() == 0 {
		h.chunk(k)
		return
	}
	if w.cfg.RecvQueue > 0 && h.datBytes+k.size > w.cfg.RecvQueue {
		w.dropped++
		w.pools.release(k)
		return
	}
	h.datagrams.push(queued{pkt: k})
	h.datBytes += k.size
	if h.datagrams.len() == 1 {
		h.workUntil = max(w.now, h.stalled) + w.recvCost
		h.wakeBy(h.workUntil)
	}
}

// wakeBy sees that wake is called at a time, at the latest.
func (h *host) wakeBy(at int64) {
	if at < h.wakeAt {
		h.wakeAt = at
		h.w.push(at, evWake, int32(h.id), nil)
	}
}

// wake is the receive worker being done with one datagram, or the processor
// running again.
func (h *host) wake() {
	w := h.w
	if w.now >= h.wakeAt {
		h.wakeAt = never
	}
	if h.dead {
		return
	}
	if w.now < h.stalled {
		h.wakeBy(h.stalled)
		return
	}
	for _, e := range h.control {
		if e.kind == evSent {
			h.batchSent(e.pkt)
		} else {
			h.message(e.pkt)
		}
	}
	h.control = h.control[:0]
	for _, c := range h.calls {
		h.start(c)
	}
	h.calls = h.calls[:0]
	for h.datagrams.len() > 0 && w.now >= h.workUntil {
		k := h.datagrams.pop().pkt
		h.datBytes -= k.size
		h.taken++
		h.chunk(k)
		h.drained()
		if w.recvCost > 0 {
			h.workUntil = w.now + w.recvCost
		}
	}
	if h.datagrams.len() > 0 {
		h.wakeBy(max(h.workUntil, w.now))
	}
	if h.timerDue {
		h.timerDue = false
		h.node.Timer(ns(w.now))
		h.act()
	}
	h.rearm()
}

// drain is a closed operation whose slot is not free yet: datagrams for it may
// be among the first upto that the receive queue has ever held.
type drain struct {
	host int
	key  opKey
	upto uint64
}

// settled is a closed operation whose datagrams have left the network: what is
// queued here now may still be among them.
func (h *host) settled(d drain) {
	d.upto = h.taken + uint64(h.datagrams.len())
	h.drains = append(h.drains, d)
	h.drained()
}

// drained tells the node what the receive queue no longer holds.
func (h *host) drained() {
	for len(h.drains) > 0 && h.drains[0].upto <= h.taken {
		d := h.drains[0]
		h.drains = h.drains[1:]
		h.node.Drained(ns(h.w.now), d.key.comm, d.key.seq)
		h.act()
	}
}
