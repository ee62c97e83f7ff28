package protocol

// A Lane is what a receive worker knows of an operation's subgroup: a bitmap of
// its own that decides, datagram by datagram and without asking anyone, where a
// payload goes. The worker writes it there and reports runs of chunks to the Op
// later (node.Chunks). Only the worker touches the Lane.
//
// A slot of the receive buffer has one claimant at a time: a chunk whose bit is
// clear belongs to the worker, which may write anything to it; one whose bit is
// set is never written by the worker again. Before a read places chunks, the worker
// is asked to Claim them for it.
type Lane struct {
	g       *Geometry
	sub     int
	bits    *Bitmap
	claimed *Bitmap // by reads; nil before the first
	missing uint32
}

// NewLane returns the lane of a rank's subgroup; its own chunks are there.
func NewLane(g *Geometry, sub, rank int) *Lane {
	l := &Lane{g: g, sub: sub, bits: NewBitmap(g.PSNs(sub))}
	psn, n := g.Block(sub, rank)
	l.missing = g.PSNs(sub) - l.bits.SetRange(psn, n)
	return l
}

// Missing is how many chunks neither arrived nor were claimed.
func (l *Lane) Missing() uint32 { return l.missing }

// Accept takes chunk psn with a payload of length bytes, and says where it belongs
// if the verdict is Placed.
func (l *Lane) Accept(psn uint32, length int) (off int64, v Verdict) {
	if psn >= l.bits.Len() {
		return 0, Foreign
	}
	off, _, want := l.g.Locate(l.sub, psn)
	if length != want {
		return 0, Foreign
	}
	if !l.bits.Set(psn) {
		if l.claimed != nil && l.claimed.Has(psn) {
			return 0, Late
		}
		return 0, Duplicate
	}
	l.missing--
	return off, Placed
}

// Free reports where chunk psn belongs if it may still be written.
func (l *Lane) Free(psn uint32) (off int64, length int, ok bool) {
	if psn >= l.bits.Len() || l.bits.Has(psn) {
		return 0, 0, false
	}
	off, _, length = l.g.Locate(l.sub, psn)
	return off, length, true
}

// Claim takes chunks [psn, psn+n) for a read: datagrams no longer place them.
func (l *Lane) Claim(psn, n uint32) {
	if psn >= l.bits.Len() || n > l.bits.Len()-psn {
		return
	}
	if l.claimed == nil {
		l.claimed = NewBitmap(l.bits.Len())
	}
	l.claimed.SetRange(psn, n)
	l.missing -= l.bits.SetRange(psn, n)
}
