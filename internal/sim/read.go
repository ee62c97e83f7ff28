package sim

import (
	"hash/crc32"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/wire"
)

// read is a read of the slow path.
type read struct {
	key    opKey
	to     int
	sub    int
	ranges []wire.Range // requested chunks; after the claim, chunks that the read must place
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
	in := h.worker(r.sub)
	r.ranges, _ = in.Claim(reg.placements[r.sub], r.ranges, nil)
	h.report(in)
	if len(r.ranges) == 0 {
		h.node.ReadDone(ns(w.now), r.key.comm, r.key.seq, r.sub, nil)
		h.act()
		return
	}
	k := w.pools.packet()
	k.kind, k.trafficClass, k.src, k.dst = pktRead, classControl, h.id, r.to
	k.comm, k.seq, k.sub, k.read = r.key.comm, r.key.seq, r.sub, r
	k.size = int64(readHeader * len(r.ranges))
	h.inject(k)
}

// serve answers a one-sided read, chunk by chunk.
func (h *host) serve(q *packet) {
	w := h.w
	defer w.pools.release(q)
	r := h.regions[opKey{q.comm, q.seq}]
	if r == nil || !r.open {
		return // refused: the reader's own failure is on its way
	}
	var last *packet
	for _, c := range q.read.ranges {
		for psn := c.PSN; psn < c.PSN+c.N; psn++ {
			if !r.placements[q.sub].InPlace(psn) {
				w.violate("rank %d reads a chunk that rank %d does not have", q.src, h.id)
			}
			k := w.pools.packet()
			k.kind, k.trafficClass, k.src, k.dst, k.read = pktResponse, classBulk, h.id, q.src, q.read
			k.comm, k.seq, k.sub, k.psn = q.comm, q.seq, q.sub, psn
			k.off, _, k.bytes = r.geo.Locate(q.sub, psn)
			k.from = r
			k.size = int64(k.bytes) + responseHeader
			k.cell = w.cellOf(r, q.sub, psn)
			if w.ownerReads != nil && r.geo.Owner(q.sub, psn) == r.mem.rank {
				w.rootFetches++
				w.ownerReads[k.cell]++
				w.maxOwnerReads = max(w.maxOwnerReads, int(w.ownerReads[k.cell]))
			}
			if last != nil {
				w.enqueue(&w.links[w.g.HostUp(h.id)], last, nil)
			}
			last = k
		}
	}
	last.last = true
	w.enqueue(&w.links[w.g.HostUp(h.id)], last, nil)
}

func (h *host) readData(k *packet) {
	r := h.regions[opKey{k.comm, k.seq}]
	switch {
	case r != nil && r.open:
		if p := r.placements[k.sub]; p.Free(k.psn) || p.InPlace(k.psn) {
			h.w.violate("rank %d reads a chunk that it has not claimed", h.id)
		}
		r.countReceived(k)
		r.mem.place(k.off, &k.pay, put)
		if k.last {
			for _, c := range k.read.ranges {
				r.placements[k.sub].Finish(c.PSN, c.N)
			}
			h.node.ReadDone(ns(h.w.now), k.comm, k.seq, k.sub, k.read.ranges)
		}
	case h.w.failures == 0:
		h.w.violate("rank %d had a read under way when its buffers were free", h.id)
	}
	h.w.pools.release(k)
	h.act()
}

// digest computes the digest of the data that a round received.
func (m *memory) digest(g *mcast.Geometry) uint64 {
	var sum uint32
	g.Spans(func(off, n int64) {
		if m.c.move {
			sum = crc32.Update(sum, crc32.IEEETable, m.recv[off:off+n])
			return
		}
		for at := off; at < off+n; at = m.c.chunkEnd(at) {
			tag := m.recvTags[m.c.cell(at)]
			bytes := []byte{byte(tag), byte(tag >> 8), byte(tag >> 16), byte(tag >> 24)}
			sum = crc32.Update(sum, crc32.IEEETable, bytes)
		}
	})
	return uint64(sum)
}
