package sim

import (
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/wire"
)

// superPacket limits the datagrams of one sender that reach a receive worker as one.
const superPacket = 8

// receiver is the receiving side of a host: a queue of datagrams, and the workers that take them.
type receiver struct {
	queue      receiveQueue
	workUntil  int64           // time until which the receive worker is busy
	workers    []*mcast.Intake // by stream
	takenCount place.Taken     // datagrams taken, shared by the workers
	reports    []*mcast.Report // reports in transit to the control thread, oldest first
	claims     []*read         // claims in transit to a receive worker, oldest first
	slots      [superPacket]mcast.Slot
	backlog    backlog

	staleSums    uint64 // sums for operations that are not open
	repeatedSums uint64 // sums for chunks that are in place
}

// receiveQueue holds the datagrams that wait for a receive worker.
type receiveQueue struct {
	fifo
	bytes  int64   // size of the queued datagrams
	taken  uint64  // number of datagrams taken from the queue
	drains []drain // operations that wait for the queue to drain, oldest first
}

func (q *receiveQueue) push(k *packet) {
	q.fifo.push(queued{pkt: k})
	q.bytes += k.size
}

func (q *receiveQueue) pop() *packet {
	k := q.fifo.pop().pkt
	q.bytes -= k.size
	q.taken++
	return k
}

// datagram handles a datagram from the wire: it may be lost, duplicated or delayed at this receiver.
func (h *host) datagram(k *packet) {
	if k.kind == pktChunk {
		h.w.recordArrival(h.w.now) // counts lost datagrams as well
	}
	h.w.disturb(k, evDeliver, int32(h.id), func() { h.receive(k) })
}

// disturb decides whether a datagram is lost, duplicated or delayed at a receiver. An event of this kind delivers it
// later, and arrive delivers it now.
func (w *world) disturb(k *packet, later eventKind, receiver int32, arrive func()) {
	if p := w.loss; w.now-k.born > w.lifetime || (p > 0 && w.rng.Float64() < p) {
		w.dropped++
		w.pools.release(k)
		return
	}
	if w.cfg.Duplicate > 0 && w.rng.Float64() < w.cfg.Duplicate {
		k.refs++
		w.push(w.now+w.displacement(), later, receiver, k)
	}
	if w.cfg.Straggle > 0 && w.rng.Float64() < w.cfg.Straggle {
		w.push(w.now+w.rng.Int64N(w.straggle), later, receiver, k)
		return
	}
	if w.cfg.Reorder > 0 && w.rng.Float64() < w.cfg.Reorder {
		w.push(w.now+w.displacement(), later, receiver, k)
		return
	}
	arrive()
}

// receive queues a datagram for the receive worker.
func (h *host) receive(k *packet) {
	w := h.w
	if w.recvCost == 0 && w.gather == 0 && !h.stopped() && h.queue.len() == 0 {
		switch {
		case k.kind == pktResult:
			h.result(k)
		case k.kind == pktWant:
			h.wanted(k)
		case !h.postpone(k):
			h.chunk(k)
			h.flush()
		}
		return
	}
	if w.cfg.RecvQueue > 0 && h.queue.bytes+k.size > w.cfg.RecvQueue {
		w.dropped++
		w.pools.release(k)
		return
	}
	h.queue.push(k)
	if h.queue.len() == 1 {
		h.workUntil = max(w.now+w.gather, h.stalled) + w.recvCost
		h.wakeBy(h.workUntil)
	}
}

// take takes the next datagrams from the queue and returns their number.
func (h *host) take() int {
	batch := []*packet{h.queue.pop()}
	if k := batch[0]; k.kind == pktResult || k.kind == pktWant {
		if k.kind == pktResult {
			h.result(k)
		} else {
			h.wanted(k)
		}
		h.flush()
		return 1
	}
	for h.w.gather > 0 && h.queue.len() > 0 && len(batch) < superPacket {
		if k := h.queue.q[h.queue.head].pkt; k.kind != pktChunk || k.src != batch[0].src || k.stream != batch[0].stream {
			break
		}
		batch = append(batch, h.queue.pop())
	}
	if len(batch) > 1 {
		h.scatter(batch)
	} else {
		h.chunk(batch[0])
	}
	h.flush()
	return len(batch)
}

// worker returns the receive worker of a stream.
func (h *host) worker(stream int) *mcast.Intake {
	for len(h.workers) <= stream {
		h.workers = append(h.workers, mcast.NewIntake(h.w.layout, h.w.reportAfter, &h.takenCount, h.w.pools.report))
	}
	return h.workers[stream]
}

// token identifies an operation in its datagrams. The engine's tokens are unique, so that it never accepts
// a stale datagram. Without them, only the draining of slots keeps a stale datagram out of the next
// operation with the same slot.
func (w *world) token(comm uint32, seq uint64, eager bool) uint64 {
	if !w.cfg.Tokens {
		seq = uint64(w.layout.Slot(seq))
	}
	t := uint64(comm)<<33 | seq<<1
	if eager {
		t |= 1
	}
	return t
}

// chunk lets the receive worker judge one datagram, and places its payload accordingly. It reports whether
// the datagram placed a chunk, and whether that chunk is at the edge of a block.
func (h *host) chunk(k *packet) (placed, edge bool) {
	in := h.worker(k.stream)
	defer h.w.pools.release(k)
	if h.keep(in, k) {
		return false, false
	}
	p, psn, off, v := in.Judge(k.token, k.comm, k.imm, k.bytes)
	if v != mcast.Placed {
		in.Ignore(p, v, 1)
		return false, false
	}
	if r := h.region(opKey{k.comm, p.Seq}); r != nil && r.open {
		r.countReceived(k)
		r.mem.place(off, k.data, put)
	} else {
		h.w.violate("rank %d placed a chunk after its buffers were free", h.id)
	}
	in.Place(p, wire.Range{PSN: psn, N: 1})
	return true, p.Edge(psn)
}

// keep keeps a datagram of an eager operation that this host has not started.
func (h *host) keep(in *mcast.Intake, k *packet) bool {
	if h.w.eagerChunks == 0 || in.Knows(k.token) {
		return false
	}
	slot, _ := h.w.layout.Split(k.imm)
	seq := h.w.layout.SeqFrom(h.node.NextRound(k.comm), slot)
	return k.token == h.w.token(k.comm, seq, true) && in.Keep(k.token, k.comm, k.imm, uint32(k.bytes), k.data)
}

// recall handles the datagrams that were kept for an eager operation.
func (h *host) recall(key opKey) {
	token := h.w.token(key.comm, key.seq, true)
	in := h.worker(0)
	in.Recall(token, func(imm, size uint32, payload []byte) {
		k := h.w.pools.packet(pktChunk, classBulk, key, h.id, -1)
		k.token, k.imm, k.bytes, k.data = token, imm, int(size), append(k.data, payload...)
		h.chunk(k)
	})
	h.report(in)
}

// scatter handles several datagrams that arrive as one. The network writes their payloads to the
// expected slots of the next chunks before the worker knows which chunks they are. A wrong guess
// leaves garbage there.
func (h *host) scatter(batch []*packet) {
	in := h.worker(batch[0].stream)
	p, n := in.Expect(h.slots[:len(batch)])
	filled := 0
	for filled < n && batch[filled].bytes == h.slots[filled].Len {
		if r := h.region(opKey{p.Comm, p.Seq}); r != nil && r.open {
			r.mem.place(h.slots[filled].Off, batch[filled].data, put)
		} else {
			h.w.violate("rank %d received to a buffer that was free", h.id)
		}
		filled++
	}
	taken := 0
	for taken < filled {
		k := batch[taken]
		if !in.Fits(taken, k.token, k.imm) {
			break
		}
		h.region(opKey{p.Comm, p.Seq}).countReceived(k)
		taken++
	}
	in.Arrived(taken)
	h.w.pools.releaseAll(batch[:taken])
	for _, k := range batch[taken:] {
		h.chunk(k)
	}
}

// flush sends the workers' reports when the queue is empty or a report is due.
func (h *host) flush() {
	for _, in := range h.workers {
		if h.queue.len() == 0 || in.Due() {
			h.report(in)
		}
	}
}

// report sends a worker's report to the control thread.
func (h *host) report(in *mcast.Intake) {
	r := in.Flush()
	switch {
	case r == nil:
	case h.w.late == 0:
		h.handleReport(r)
	default:
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
	h.handleReport(r)
}

func (h *host) handleReport(r *mcast.Report) {
	h.node.Received(ns(h.w.now), r, false)
	h.w.pools.recycle(r)
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
	h.catchUp()
	d.upto = h.queue.taken + uint64(h.queue.len())
	h.queue.drains = append(h.queue.drains, d)
	h.reportDrained()
}

// reportDrained reports operations whose datagrams have left the receive queue.
func (h *host) reportDrained() {
	for len(h.queue.drains) > 0 && h.queue.drains[0].upto <= h.queue.taken {
		d := h.queue.drains[0]
		h.queue.drains = h.queue.drains[1:]
		h.node.Drained(ns(h.w.now), d.key.comm, d.key.seq)
		h.act()
	}
}
