package protocol

// Verdict is what a Receiver made of a datagram.
type Verdict uint8

// Verdicts. Only Placed is worth a write; the rest is ordinary input.
const (
	Placed    Verdict = iota
	Duplicate         // the chunk is there already
	Late              // a read of the chunk is under way and will place it
	Foreign           // no chunk of this operation: PSN or length do not fit
)

// A Receiver is the fast path's receive side for one subgroup: it decides for
// each datagram where its payload goes. It belongs to one worker, shares nothing
// with the other subgroups, and allocates nothing.
type Receiver struct {
	g     *Geometry
	sub   int
	own   int // our own index among the senders, or -1
	bits  *Bitmap
	busy  *Bitmap // chunks that a read will place; nil before the first
	asked *Bitmap // chunks asked of the left neighbour; nil before the first

	// sent[i] is how many of sender i's chunks in this subgroup are known to have
	// been sent. A datagram proves it for those before it: a rank sends in order.
	sent []uint32
	// seen[i] is how many of them no longer occupy our receive queue: they were
	// placed, or a later datagram overtook them. What we know only from the reliable
	// path may still be waiting there. For credit; nil without.
	seen []uint32
	full []int32 // per chain: members before this position are known to have sent all

	at         int    // sender of the chunk placed last,
	nth        uint32 // and which of its chunks in this subgroup, from 1
	missing    uint32 // chunks not placed
	bytes      int64  // placed by datagrams
	consumed   uint64 // the sum of seen
	late       uint64
	duplicates uint64
	foreign    uint64
}

func newReceiver(g *Geometry, sub, rank int, credit bool) Receiver {
	r := Receiver{
		g: g, sub: sub, own: int(g.index[rank]), bits: NewBitmap(g.PSNs(sub)),
		sent: make([]uint32, len(g.senders)), full: make([]int32, len(g.chains.members)),
	}
	if credit {
		r.seen = make([]uint32, len(g.senders))
	}
	psn, n := g.Block(sub, rank)
	r.missing = g.PSNs(sub) - r.bits.SetRange(psn, n)
	return r
}

// Accept takes chunk psn with a payload of length bytes. If the verdict is
// Placed, the payload belongs at offset off of the receive buffer and must be
// there before the operation makes its next step.
func (r *Receiver) Accept(psn uint32, length int) (off int64, v Verdict) {
	if psn >= r.bits.Len() {
		r.foreign++
		return 0, Foreign
	}
	i := r.g.sender(r.sub, psn)
	off, _, want := r.g.locate(r.sub, psn, i)
	if length != want {
		r.foreign++
		return 0, Foreign
	}
	if r.busy != nil {
		if r.asked.Has(psn) {
			r.late++
		}
		if r.busy.Has(psn) {
			return 0, Late
		}
	}
	if !r.bits.Set(psn) {
		r.duplicates++
		return 0, Duplicate
	}
	r.missing--
	r.bytes += int64(want)
	r.at, r.nth = i, psn-r.g.base[r.sub][i]+1
	r.saw(i, r.nth)
	return off, Placed
}

// acceptRun is Accept for chunks [psn, psn+n) that are all there already, if they are of
// one sender and new, and no read was ever made; otherwise it does nothing.
func (r *Receiver) acceptRun(psn, n uint32) bool {
	if r.busy != nil || n == 0 || psn >= r.bits.Len() || n > r.bits.Len()-psn || r.bits.NextSet(psn, psn+n) < psn+n {
		return false
	}
	i := r.g.sender(r.sub, psn)
	if psn+n > r.g.base[r.sub][i+1] {
		return false
	}
	_, length := r.g.Span(r.sub, psn, n)
	r.bits.SetRange(psn, n)
	r.missing -= n
	r.bytes += length
	r.at, r.nth = i, psn+n-r.g.base[r.sub][i]
	r.saw(i, r.nth)
	return true
}

// saw learns from the n-th chunk of sender i that those before it were sent, and
// that all before its direct predecessor in the chain have finished: a rank
// activates its successor only once its own predecessor has sent all.
func (r *Receiver) saw(i int, n uint32) {
	r.note(i, n)
	r.pass(i, n)
	c := &r.g.chains
	k := c.of[i]
	for p := r.full[k]; p < c.pos[i]-1; p++ {
		m := c.members[k][p]
		r.finished(m)
		r.pass(m, r.sent[m])
		r.full[k] = p + 1
	}
}

// note learns that the first n chunks of sender i were sent. What we send
// ourselves is known better by the sender.
func (r *Receiver) note(i int, n uint32) {
	if n > r.sent[i] && i != r.own {
		r.sent[i] = n
	}
}

// finished learns that sender i has sent all.
func (r *Receiver) finished(i int) { r.note(i, r.g.base[r.sub][i+1]-r.g.base[r.sub][i]) }

// pass counts the first n chunks of sender i as no longer in our receive queue.
func (r *Receiver) pass(i int, n uint32) {
	if r.seen != nil && n > r.seen[i] && i != r.own {
		r.consumed += uint64(n - r.seen[i])
		r.seen[i] = n
	}
}

// passAll does so for all that is known to have been sent.
func (r *Receiver) passAll() {
	for i, n := range r.sent {
		r.pass(i, n)
	}
}

// noteAll learns that everything was sent.
func (r *Receiver) noteAll() {
	for i := range r.sent {
		r.finished(i)
	}
}
