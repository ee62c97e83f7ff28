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
	full []int32 // per chain: members before this position are known to have sent all

	at         int    // sender of the chunk placed last,
	nth        uint32 // and which of its chunks in this subgroup, from 1
	missing    uint32 // chunks not placed
	bytes      int64  // placed by datagrams
	consumed   uint64 // chunks placed or known to have been sent and not here
	late       uint64
	duplicates uint64
	foreign    uint64
}

func newReceiver(g *Geometry, sub, rank int) Receiver {
	r := Receiver{
		g: g, sub: sub, own: int(g.index[rank]), bits: NewBitmap(g.PSNs(sub)),
		sent: make([]uint32, len(g.senders)), full: make([]int32, len(g.chains.members)),
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
	if r.nth > r.sent[i] {
		r.note(i, r.nth)
		r.infer(i, 1)
	}
	return off, Placed
}

// note learns that the first n chunks of sender i were sent. What we send
// ourselves is known better by the sender.
func (r *Receiver) note(i int, n uint32) {
	if n > r.sent[i] && i != r.own {
		r.consumed += uint64(n - r.sent[i])
		r.sent[i] = n
	}
}

// infer learns from sender i being active what the chain before it has done: a
// rank activates its successor only once its own predecessor has sent all, so
// all but the last behind members before it have.
func (r *Receiver) infer(i int, behind int32) {
	c := &r.g.chains
	k := c.of[i]
	for p := r.full[k]; p < c.pos[i]-behind; p++ {
		m := c.members[k][p]
		r.note(m, r.g.base[r.sub][m+1]-r.g.base[r.sub][m])
		r.full[k] = p + 1
	}
}

// noteAll learns that everything was sent.
func (r *Receiver) noteAll() {
	b := r.g.base[r.sub]
	for i := range r.sent {
		r.note(i, b[i+1]-b[i])
	}
}
