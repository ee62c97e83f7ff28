package sim

import "github.com/allcast/allcast/internal/wire"

// read is a read of the slow path.
type read struct {
	key    opKey
	to     int
	stream int
	ranges []wire.Range // requested chunks; after the claim, chunks that the read must place
	fetch  *fetch       // if not nil, the read is for contributions
}

// read asks the receive worker to claim chunks, and then reads those that it won.
func (h *host) read(r *read) {
	h.claims = append(h.claims, r)
	h.notify(evClaim)
}

// claim lets the receive worker claim chunks. The worker reports its placed chunks before the read
// starts.
func (h *host) claim(r *read) {
	w := h.w
	reg := h.regions[r.key]
	if reg == nil {
		return // the round has ended meanwhile
	}
	in := h.worker(r.stream)
	r.ranges, _ = in.Claim(reg.placements[r.stream], r.ranges, nil)
	h.report(in)
	if len(r.ranges) == 0 {
		h.node.ReadDone(ns(w.now), r.key.comm, r.key.seq, r.stream, nil)
		h.act()
		return
	}
	k := w.pools.packet(pktRead, classControl, r.key, h.id, r.to)
	k.stream, k.read = r.stream, r
	k.size = int64(readHeader * len(r.ranges))
	h.inject(k)
}

// serve answers a one-sided read, chunk by chunk.
func (h *host) serve(q *packet) {
	w := h.w
	defer w.pools.release(q)
	r, eager := h.kept[q.opKey]
	if !eager {
		r = h.regions[q.opKey]
	}
	if r == nil || !r.open {
		return // refused: the reader's own failure is on its way
	}
	if q.read.fetch != nil {
		h.serveFetch(q, r)
		return
	}
	left := wire.Chunks(q.read.ranges)
	for _, c := range q.read.ranges {
		for psn := c.PSN; psn < c.PSN+c.N; psn++ {
			if !r.placements[q.stream].InPlace(psn) {
				w.violate("rank %d reads a chunk that rank %d does not have", q.src, h.id)
			}
			k := w.pools.packet(pktResponse, classBulk, q.opKey, h.id, q.src)
			k.read = q.read
			w.locate(k, r, q.stream, psn, responseHeader)
			if w.ownerReads != nil && !eager && r.geo.Owner(q.stream, psn) == r.mem.rank {
				w.rootFetches++
				w.ownerReads[k.cell]++
				w.maxOwnerReads = max(w.maxOwnerReads, int(w.ownerReads[k.cell]))
			}
			left--
			k.last = left == 0
			h.inject(k)
		}
	}
}

func (h *host) readData(k *packet) {
	r := h.regions[k.opKey]
	switch {
	case r != nil && r.open && k.read.fetch != nil:
		h.fetchData(k, r)
	case r != nil && r.open:
		if p := r.placements[k.stream]; p.Free(k.psn) || p.InPlace(k.psn) {
			h.w.violate("rank %d reads a chunk that it has not claimed", h.id)
		}
		r.countReceived(k)
		r.mem.place(k.off, k.data, put)
		if k.last {
			for _, c := range k.read.ranges {
				r.placements[k.stream].Finish(c.PSN, c.N)
			}
			h.node.ReadDone(ns(h.w.now), k.comm, k.seq, k.stream, k.read.ranges)
		}
	case h.w.failures == 0:
		h.w.violate("rank %d had a read under way when its buffers were free", h.id)
	}
	h.w.pools.release(k)
	h.act()
}
