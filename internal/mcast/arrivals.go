package mcast

import "github.com/allcast/allcast/internal/wire"

// arrivals holds what a Collective knows about one stream beyond its Placement: how many chunks each
// sender of the stream is known to have sent. It numbers the senders by their positions in the stream.
type arrivals struct {
	*Placement
	*tally
	self int // position of this rank, or -1

	// sent[j] is the number of sender j's chunks in this stream that are known to have been
	// sent. A rank sends in order, so a datagram proves that all earlier chunks were sent.
	sent []uint32
	// seen[j] is the number of those chunks that no longer occupy this rank's receive queue:
	// they were placed, or a later datagram overtook them. Chunks known only from reliable
	// messages may still wait in the queue. Used for credit; nil without credit.
	seen []uint32
	full []int32 // per chain of the stream: number of leading members known to have sent everything
}

// tally counts the chunks of all streams.
type tally struct {
	missing  uint32 // chunks not yet reported as in place
	received uint64 // chunks placed by datagrams
	sent     uint64 // chunks of other ranks known to have been sent
	consumed uint64 // sum of all seen
}

func newArrivals(t *tally, g *Geometry, p *Placement, rank int, credit bool) arrivals {
	t.missing += p.Len() - p.own.N
	senders := len(g.order[p.Stream])
	a := arrivals{
		Placement: p, tally: t, self: -1,
		sent: make([]uint32, senders), full: make([]int32, (g.Chains()+g.split-1)/g.split),
	}
	if i := int(g.index[rank]); i >= 0 && g.carries(p.Stream, i) {
		a.self = int(g.place[i])
	}
	if credit {
		a.seen = make([]uint32, senders)
	}
	return a
}

// recordPlaced records that datagrams have brought chunks q of sender j.
func (a *arrivals) recordPlaced(j int, q wire.Range) {
	a.missing -= q.N
	a.received += uint64(q.N)
	a.recordArrival(j, q.PSN+q.N-a.g.base[a.Stream][j])
}

// recordArrival records the arrival of the n-th chunk of sender j. All earlier chunks of j were sent.
// All ranks before j's direct predecessor in the chain have finished, because a rank activates its
// successor only after its own predecessor has finished.
func (a *arrivals) recordArrival(j int, n uint32) {
	a.recordSent(j, n)
	a.consume(j, n)
	c, i := &a.g.chains, a.g.sender(a.Stream, j)
	k := c.of[i]
	full := &a.full[int(k)/a.g.split]
	for p := *full; p < c.pos[i]-1; p++ {
		m := int(a.g.place[c.members[k][p]])
		a.recordFinished(m)
		a.consume(m, a.sent[m])
		*full = p + 1
	}
}

// recordSent records that sender j has sent its first n chunks. It skips this rank, whose sender
// state is more precise.
func (a *arrivals) recordSent(j int, n uint32) {
	if n > a.sent[j] && j != a.self {
		a.tally.sent += uint64(n - a.sent[j])
		a.sent[j] = n
	}
}

// recordFinished records that sender j has sent all its chunks.
func (a *arrivals) recordFinished(j int) { a.recordSent(j, a.g.blockSize(a.Stream, j)) }

// consume counts the first n chunks of sender j as no longer in the receive queue.
func (a *arrivals) consume(j int, n uint32) {
	if a.seen != nil && n > a.seen[j] && j != a.self {
		a.consumed += uint64(n - a.seen[j])
		a.seen[j] = n
	}
}

// consumeSent consumes all chunks that are known to have been sent.
func (a *arrivals) consumeSent() {
	for j, n := range a.sent {
		a.consume(j, n)
	}
}

// recordAllFinished records that every sender has sent all its chunks.
func (a *arrivals) recordAllFinished() {
	for j := range a.sent {
		a.recordFinished(j)
	}
}
