package sim

import (
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/wire"
)

// superPacket limits the datagrams of one sender that reach a receive worker as one.
const superPacket = 8

// datagram decides whether a multicast datagram is lost, duplicated or delayed at this receiver.
func (h *host) datagram(k *packet) {
	w := h.w
	w.recordArrival(w.now) // counts lost datagrams as well
	if p := w.loss; w.now-k.born > w.lifetime || (p > 0 && w.rng.Float64() < p) {
		w.dropped++
		w.pools.release(k)
		return
	}
	if w.cfg.Duplicate > 0 && w.rng.Float64() < w.cfg.Duplicate {
		k.refs++
		w.push(w.now+w.displacement(), evDeliver, int32(h.id), k)
	}
	if w.cfg.Straggle > 0 && w.rng.Float64() < w.cfg.Straggle {
		w.push(w.now+w.rng.Int64N(w.straggle), evDeliver, int32(h.id), k)
		return
	}
	if w.cfg.Reorder > 0 && w.rng.Float64() < w.cfg.Reorder {
		w.push(w.now+w.displacement(), evDeliver, int32(h.id), k)
		return
	}
	h.receive(k)
}

// receive queues a datagram for the receive worker.
func (h *host) receive(k *packet) {
	w := h.w
	if w.recvCost == 0 && w.gather == 0 && w.now >= h.stalled && h.datagrams.len() == 0 {
		h.chunk(k)
		h.flush()
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
		h.workUntil = max(w.now+w.gather, h.stalled) + w.recvCost
		h.wakeBy(h.workUntil)
	}
}

// wakeBy schedules wake at a time or earlier.
func (h *host) wakeBy(at int64) {
	if at < h.wakeAt {
		h.wakeAt = at
		h.w.push(at, evWake, int32(h.id), nil)
	}
}

// wake runs when the receive worker has finished a datagram or a batch, or when the processor runs
// again.
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
	control := h.control
	h.control = nil
	for _, e := range control {
		switch e.kind {
		case evSent:
			h.batchSent(e.pkt)
		case evReport, evClaim:
			h.handleNotified(e.kind)
		default:
			h.message(e.pkt)
		}
	}
	for _, c := range h.calls {
		h.start(c)
	}
	h.calls = h.calls[:0]
	for h.datagrams.len() > 0 && w.now >= h.workUntil {
		n := h.take()
		h.reportDrained()
		if w.recvCost > 0 {
			h.workUntil = w.now + int64(n)*w.recvCost
		}
	}
	if h.datagrams.len() > 0 {
		h.wakeBy(max(h.workUntil, w.now))
	}
	if h.timerDue {
		h.timerDue = false
		h.runTimer()
	}
	h.rearm()
}

// take takes the next datagrams from the queue and returns their number.
func (h *host) take() int {
	batch := []*packet{h.pop()}
	for h.w.gather > 0 && h.datagrams.len() > 0 && len(batch) < superPacket {
		if k := h.datagrams.q[h.datagrams.head].pkt; k.src != batch[0].src || k.sub != batch[0].sub {
			break
		}
		batch = append(batch, h.pop())
	}
	if len(batch) > 1 {
		h.scatter(batch)
	} else {
		h.chunk(batch[0])
	}
	h.flush()
	return len(batch)
}

func (h *host) pop() *packet {
	k := h.datagrams.pop().pkt
	h.datBytes -= k.size
	h.taken++
	return k
}

// worker returns the receive worker of a subgroup.
func (h *host) worker(sub int) *mcast.Intake {
	for len(h.workers) <= sub {
		h.workers = append(h.workers, mcast.NewIntake(h.w.layout, h.w.reportAfter, &h.takenCount, h.w.report))
	}
	return h.workers[sub]
}

// token identifies an operation in datagrams by its communicator and slot. The engine's tokens are
// unique, so that it never accepts a stale datagram. Here only the draining of slots keeps a stale
// datagram out of the next operation.
func (h *host) token(comm, slot uint32) uint64 { return uint64(comm)<<32 | uint64(slot) }

// chunk lets the receive worker judge one datagram, and places its payload accordingly.
func (h *host) chunk(k *packet) {
	in := h.worker(k.sub)
	slot, _ := h.w.layout.Split(k.imm)
	p, psn, off, v := in.Judge(h.token(k.comm, slot), k.comm, k.imm, k.bytes)
	if v == mcast.Placed {
		if r := h.region(opKey{k.comm, p.Seq}); r != nil && r.open {
			r.countReceived(k)
			r.mem.place(off, &k.pay, put)
		} else {
			h.w.violate("rank %d placed a chunk after its buffers were free", h.id)
		}
		in.Place(p, wire.Range{PSN: psn, N: 1})
	} else {
		in.Ignore(p, v, 1)
	}
	h.w.pools.release(k)
}

// scatter handles several datagrams that arrive as one. The network writes their payloads to the
// expected slots of the next chunks before the worker knows which chunks they are. A wrong guess
// leaves garbage there.
func (h *host) scatter(batch []*packet) {
	in := h.worker(batch[0].sub)
	p, n := in.Expect(h.slots[:len(batch)])
	filled := 0
	for filled < n && batch[filled].bytes == h.slots[filled].Len {
		if r := h.region(opKey{p.Comm, p.Seq}); r != nil && r.open {
			r.mem.place(h.slots[filled].Off, &batch[filled].pay, put)
		} else {
			h.w.violate("rank %d received to a buffer that was free", h.id)
		}
		filled++
	}
	taken := 0
	for taken < filled {
		k := batch[taken]
		slot, _ := h.w.layout.Split(k.imm)
		if !in.Fits(taken, h.token(k.comm, slot), k.imm) {
			break
		}
		h.region(opKey{p.Comm, p.Seq}).countReceived(k)
		taken++
	}
	in.Arrived(taken)
	for _, k := range batch[:taken] {
		h.w.pools.release(k)
	}
	for _, k := range batch[taken:] {
		h.chunk(k)
	}
}

// flush sends the workers' reports when the queue is empty or a report is due.
func (h *host) flush() {
	for _, in := range h.workers {
		if h.datagrams.len() == 0 || in.Due() {
			h.report(in)
		}
	}
}

// report sends a worker's report to the control thread.
func (h *host) report(in *mcast.Intake) {
	if r := in.Flush(); r != nil {
		h.reports = append(h.reports, r)
		h.notify(evReport)
	}
}

// notify passes a report or claim between the receive worker and the control thread: at once, or after
// a scheduling delay.
func (h *host) notify(kind eventKind) {
	w := h.w
	if w.late == 0 {
		h.handleNotified(kind)
		return
	}
	w.push(w.now+int64(w.rng.ExpFloat64()*float64(w.late)), kind, int32(h.id), nil)
}

// handleNotified handles the oldest report or claim.
func (h *host) handleNotified(kind eventKind) {
	if h.dead {
		return
	}
	if kind == evClaim {
		r := h.claims[0]
		h.claims = h.claims[1:]
		h.claim(r)
		return
	}
	r := h.reports[0]
	h.reports = h.reports[1:]
	h.node.Received(ns(h.w.now), r, false)
	h.w.recycle(r)
	h.act()
}

// drain is a closed operation whose slot is not free yet. Its datagrams may be among the first upto
// that the receive queue has ever held.
type drain struct {
	host int
	key  opKey
	upto uint64
}

// awaitQueue handles a closed operation whose datagrams have left the network. Some may still be in
// the receive queue.
func (h *host) awaitQueue(d drain) {
	d.upto = h.taken + uint64(h.datagrams.len())
	h.drains = append(h.drains, d)
	h.reportDrained()
}

// reportDrained reports operations whose datagrams have left the receive queue.
func (h *host) reportDrained() {
	for len(h.drains) > 0 && h.drains[0].upto <= h.taken {
		d := h.drains[0]
		h.drains = h.drains[1:]
		h.node.Drained(ns(h.w.now), d.key.comm, d.key.seq)
		h.act()
	}
}
