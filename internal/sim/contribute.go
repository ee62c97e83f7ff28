package sim

import (
	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/wire"
)

// reduction is the part of a region that concerns aggregators.
type reduction struct {
	layout *inc.Layout
	record *place.Map // chunks of the rank's block
	number uint32
}

// startReduction starts a call that aggregators reduce.
func (h *host) startReduction(c *collective) error {
	rank := c.rankOf(h.id)
	return h.node.StartReduction(ns(h.w.now), c.comm, c.req, &inc.Reduction{
		Rank: rank, Size: len(c.members), Kind: c.kind, Counts: c.counts, Chunk: int(c.chunk), Tree: h.w.inc.digest,
	}, c.then)
}

// contribute sends this host's contributions to its aggregator.
func (h *host) contribute(a *node.Action) {
	w, key := h.w, opKey{a.Comm, a.Seq}
	r := h.regions[key]
	c := r.mem.c
	_, child := w.inc.Server(h.id)
	var last *packet
	for place := a.PSN; place < a.PSN+a.N; place++ {
		owner, _, off, n := r.layout.At(place)
		if owner == r.mem.rank {
			continue
		}
		k := w.pools.packet(pktSum, classBulk, key, h.id, -1)
		k.from, k.off, k.input, k.n, k.all = r, off, true, a.N, n
		k.bytes, k.size = int(n), n+sumHeader
		kind := inc.Contribution
		if a.Offer {
			kind, k.bytes, k.size = inc.Offer, 0, sumHeader
		}
		k.head = inc.Header{
			Kind: kind, Try: a.Try, Type: c.elementType(), Token: incToken(a.Comm, a.Number), Comm: a.Comm,
			Number: a.Number, Place: place, Owner: uint16(c.members[owner]), Child: uint16(child),
		}
		if last != nil {
			h.inject(last)
		}
		last = k
	}
	if last == nil { // all chunks are of this host's own block
		h.node.Sent(ns(w.now), a.Comm, a.Seq, a.N)
		return
	}
	last.last = true
	h.inject(last)
}

// result handles a sum that arrives at its owner.
func (h *host) result(k *packet) {
	h.catchUp()
	r := h.region(k.opKey)
	if r == nil || r.record == nil || !r.open || r.number != k.head.Number {
		h.staleSums++
		h.w.pools.release(k)
		return
	}
	owner, nth, off, n := r.layout.At(k.head.Place)
	if owner != r.mem.rank || n != int64(k.bytes) {
		h.w.violate("rank %d got a sum for rank %d of %d bytes", h.id, owner, k.bytes)
	}
	if !r.record.Take(nth) {
		h.repeatedSums++
		h.w.pools.release(k)
		return
	}
	r.countReceived(k)
	r.mem.place(off, k.data, addToInput)
	r.record.Finish(nth, 1)
	if late := h.w.late; late > 0 {
		h.w.push(h.w.now+int64(h.w.rng.ExpFloat64()*float64(late)), evSummed, int32(h.id), k)
		return
	}
	h.summed(k)
}

// wanted handles an aggregator's answer to an offer.
func (h *host) wanted(k *packet) {
	h.catchUp()
	h.node.Wanted(ns(h.w.now), k.comm, k.seq, k.head.Place, k.head.Try)
	h.act()
	h.w.pools.release(k)
}

// summed reports a sum to the node.
func (h *host) summed(k *packet) {
	if !h.dead {
		h.node.Summed(ns(h.w.now), k.comm, k.seq)
		h.act()
	}
	h.w.pools.release(k)
}

// fetch makes sums of chunks from the contributions of all ranks, which it reads.
type fetch struct {
	psn, n uint32     // as the node asked
	chunks []uint32   // chunks that the fetch has claimed
	data   [][][]byte // by chunk and rank: contribution
	left   int        // contributions that have not arrived
}

// fetch claims chunks and reads the contributions of all other ranks.
func (h *host) fetch(a *node.Action) {
	w, key := h.w, opKey{a.Comm, a.Seq}
	r := h.regions[key]
	f := &fetch{psn: a.PSN, n: a.N}
	var ranges []wire.Range
	r.record.Claim(a.PSN, a.N, func(i, n uint32) {
		ranges = append(ranges, wire.Range{PSN: i, N: n})
		for ; n > 0; n-- {
			f.chunks = append(f.chunks, i)
			f.data = append(f.data, make([][]byte, len(r.mem.c.members)))
			i++
		}
	})
	f.left = len(f.chunks) * (len(r.mem.c.members) - 1)
	if f.left == 0 {
		h.finishFetch(key, f)
		return
	}
	for _, to := range r.mem.c.members {
		if to != h.id {
			k := w.pools.packet(pktRead, classControl, key, h.id, to)
			k.read = &read{key: key, to: to, ranges: ranges, fetch: f}
			k.size = int64(readHeader * len(ranges))
			h.inject(k)
		}
	}
}

// serveFetch answers a read of contributions, chunk by chunk.
func (h *host) serveFetch(q *packet, r *region) {
	if r.record == nil {
		h.w.violate("rank %d reads contributions of rank %d, which runs something else", q.src, h.id)
		return
	}
	owner := r.mem.c.rankOf(q.src)
	for i, nth := range q.read.fetch.chunks {
		k := h.w.pools.packet(pktResponse, classBulk, q.opKey, h.id, q.src)
		k.read, k.psn, k.from, k.input = q.read, uint32(i), r, true
		var n int64
		_, _, k.off, n = r.layout.At(r.layout.Place(owner, nth))
		k.bytes, k.size = int(n), n+responseHeader
		k.last = i == len(q.read.fetch.chunks)-1
		h.inject(k)
	}
}

// fetchData handles a contribution that was read. The last one completes the fetch.
func (h *host) fetchData(k *packet, r *region) {
	f := k.read.fetch
	r.countReceived(k)
	f.data[k.psn][r.mem.c.rankOf(k.src)] = append([]byte(nil), k.data...)
	if f.left--; f.left > 0 {
		return
	}
	c, tree := r.mem.c, h.w.inc
	add := func(dst, src []byte) { c.sum(dst, dst, src) }
	for i, nth := range f.chunks {
		_, _, off, _ := r.layout.At(r.layout.Place(r.mem.rank, nth))
		sum := make([]byte, len(f.data[i][(r.mem.rank+1)%len(c.members)]))
		input := func(world int) []byte { return f.data[i][c.rankOf(world)] }
		tree.Combine(sum, h.id, make([]byte, tree.Depth()*len(sum)), input, add)
		r.mem.place(off, sum, addToInput)
		r.record.Finish(nth, 1)
	}
	h.finishFetch(k.opKey, f)
}

func (h *host) finishFetch(key opKey, f *fetch) {
	h.node.Fetched(ns(h.w.now), key.comm, key.seq, f.psn, f.n)
}
