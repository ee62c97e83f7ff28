package node

import (
	"slices"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

// incChunk is the size of the chunks that the network adds up.
const incChunk = 4

// piece is a range of the buffer of a peer that arrives as the nth from that peer.
type piece struct {
	opKey
	from    int
	nth     uint32
	payload []byte
}

// heldKey names a piece that waits for its turn, by its number in the plan.
type heldKey struct {
	opKey
	recv int
}

// result is a sum that comes down from the network.
type result struct {
	opKey
	off int64
	sum []byte
}

// contribution is a chunk that goes up to the network.
type contribution struct {
	job *job
	opKey
	off     int64
	payload []byte
}

// networkSum is a chunk that the network adds up.
type networkSum struct {
	have  int
	data  []byte
	after []func() // of the first chunk of a block: the other chunks, which wait for it
}

// openRound returns a round whose buffers the fabric may touch, or nil.
func (h *host) openRound(key opKey) *hostRound {
	if r := h.rounds[key]; r != nil && r.state == isOpen {
		return r
	}
	return nil
}

// putLeaves is a range that leaves the buffer, for a peer or for the network. It is read now, not when
// the node handed it over.
func (h *host) putLeaves(a Action) {
	c, key := h.c, opKey{a.Comm, a.Seq}
	if _, isMail := wire.MailSender(a.Seq); isMail {
		h.mailLeaves(a)
		return
	}
	r := h.openRound(key)
	if r == nil {
		return // it failed meanwhile
	}
	payload := clustertest.Gather(r.share.recv, a.Off, a.Len, a.Parts)
	if a.Kind == Put {
		c.hosts[a.To].pieces[h.ID].Push(piece{key, h.ID, a.PSN, payload})
	} else {
		h.ups.Push(contribution{r.share.job, key, a.Off, payload})
	}
	h.node.Sent(c.Now, a.Comm, a.Seq, 1)
}

// piece is a piece that arrives.
func (h *host) piece(p piece) {
	placeable := h.openRound(p.opKey) != nil || h.openTransit(p.opKey) != nil
	if !placeable && h.node.Early(p.from, p.comm, p.seq, int64(len(p.payload))) {
		h.early[p.opKey] = append(h.early[p.opKey], p)
		h.peakEarly = max(h.peakEarly, len(h.early))
		return
	}
	h.node.Heard(h.c.Now, p.from)
	if !h.takes(p) && !h.c.hurt {
		h.c.Failf("rank %d does not take piece %d of rank %d", h.ID, p.nth, p.from)
	}
}

// takes places, adds or keeps a piece, and reports whether it was expected.
func (h *host) takes(p piece) bool {
	if _, isMail := wire.MailSender(p.seq); isMail {
		return h.takesMail(p)
	}
	o := h.openRound(p.opKey)
	if o == nil || o.in == nil {
		return false
	}
	i, r, hold, ok := o.in.Take(slices.Index(h.c.comms[p.comm], p.from), p.nth, int64(len(p.payload)))
	if !ok {
		return false
	}
	buf := o.share.recv
	switch {
	case hold:
		h.kept[heldKey{p.opKey, i}] = p.payload
	default:
		addPiece(buf, r, p.payload)
	}
	o.in.Arrived(i)
	for i := o.in.Next(); i >= 0; i = o.in.Next() {
		k := heldKey{p.opKey, i}
		addPiece(buf, &o.share.plan.Recvs[i], h.kept[k])
		delete(h.kept, k)
		o.in.Arrived(i)
	}
	prefix, left := o.in.Progress()
	h.node.Pieces(h.c.Now, p.from, p.comm, p.seq, prefix, left)
	return true
}

// addPiece places a piece, or adds it to the buffer's content.
func addPiece(buf []byte, r *p2p.Recv, payload []byte) {
	if r.Apart {
		copy(buf[r.Off:], buf[r.Base:r.Base+r.Len])
	}
	if r.Reduce {
		clustertest.Sum(buf[r.Off:], payload)
	} else {
		copy(buf[r.Off:], payload)
	}
}

// addUp is a chunk that reaches the network. When the last contribution is there, the sum goes down to
// the ranks that want it.
func (c *cluster) addUp(x contribution) {
	j, key, off := x.job, x.opKey, x.off
	if c.sums[key] == nil {
		c.sums[key] = map[int64]*networkSum{}
	}
	lo, hi, owner := j.blockAt(off)
	s := c.sums[key][off]
	if s == nil {
		s = &networkSum{data: make([]byte, min(hi-off, incChunk))}
		c.sums[key][off] = s
	}
	clustertest.Sum(s.data, x.payload)
	want := j.spec.Size
	if j.kind == p2p.ReduceScatter && off > lo {
		want-- // the owner adds its own locally
	}
	if s.have++; s.have < want {
		return
	}
	down := func() {
		for r, m := range c.comms[j.comm] {
			if j.kind == p2p.Allreduce || r == owner {
				c.hosts[m].results.Push(result{key, off, s.data})
			}
		}
	}
	// An owner that has not sent its first chunk is not ready to receive.
	first := c.sums[key][lo]
	switch {
	case j.kind == p2p.Allreduce || (first != nil && first.have == j.spec.Size):
		down()
		for _, f := range s.after {
			f()
		}
	case first == nil:
		c.Failf("a chunk at %d goes up before the first chunk of its block", off)
	default:
		first.after = append(first.after, down)
	}
}

// blockAt is the range and the owner of the block at an offset.
func (j *job) blockAt(off int64) (lo, hi int64, owner int) {
	if j.kind == p2p.Allreduce {
		return 0, j.Total(), -1
	}
	for r := range j.Counts {
		if lo, hi = j.Block(r); off < hi {
			return lo, hi, r
		}
	}
	return lo, hi, -1
}

func (h *host) result(x result) {
	if h.node.Result(h.c.Now, x.comm, x.seq, x.off, int64(len(x.sum))) {
		r := h.openRound(x.opKey)
		if r == nil {
			h.c.Failf("rank %d takes a sum for operation %+v, which is not open", h.ID, x.opKey)
		}
		if r.share.job.kind == p2p.ReduceScatter {
			clustertest.Sum(r.share.recv[x.off:], x.sum)
		} else {
			copy(r.share.recv[x.off:], x.sum)
		}
	} else if !h.c.hurt {
		h.c.Failf("rank %d does not take the sum at %d", h.ID, x.off)
	}
}
