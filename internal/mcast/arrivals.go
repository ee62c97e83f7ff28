package mcast

import "github.com/allcast/allcast/internal/wire"

// arrivals holds what a Collective knows about one subgroup beyond its Placement: how many chunks each
// sender is known to have sent.
type arrivals struct {
	*Placement
	*tally
	ownIndex int // index of this rank among the senders, or -1

	// sent[i] is the number of sender i's chunks in this subgroup that are known to have been
	// sent. A rank sends in order, so a datagram proves that all earlier chunks were sent.
	sent []uint32
	// seen[i] is the number of those chunks that no longer occupy this rank's receive queue:
	// they were placed, or a later datagram overtook them. Chunks known only from reliable
	// messages may still wait in the queue. Used for credit; nil without credit.
	seen []uint32
	full []int32 // per chain: number of leading members known to have sent everything
}

// tally counts the chunks of all subgroups.
type tally struct {
	missing  uint32 // chunks not yet reported as in place
	received uint64 // chunks placed by datagrams
	consumed uint64 // sum of all seen
}

func newArrivals(t *tally, g *Geometry, p *Placement, rank int, credit bool) arrivals {
	t.missing += p.Len() - p.own.N
	a := arrivals{
		Placement: p, tally: t, ownIndex: int(g.index[rank]),
		sent: make([]uint32, len(g.senders)), full: make([]int32, len(g.chains.members)),
	}
	if credit {
		a.seen = make([]uint32, len(g.senders))
	}
	return a
}

// recordPlaced records that datagrams have brought chunks q of sender i.
func (a *arrivals) recordPlaced(i int, q wire.Range) {
	a.missing -= q.N
	a.received += uint64(q.N)
	a.recordArrival(i, q.PSN+q.N-a.g.base[a.Sub][i])
}

// recordArrival records the arrival of the n-th chunk of sender i. All earlier chunks of i were sent.
// All ranks before i's direct predecessor in the chain have finished, because a rank activates its
// successor only after its own predecessor has finished.
func (a *arrivals) recordArrival(i int, n uint32) {
	a.recordSent(i, n)
	a.consume(i, n)
	c := &a.g.chains
	k := c.of[i]
	for p := a.full[k]; p < c.pos[i]-1; p++ {
		m := c.members[k][p]
		a.recordFinished(m)
		a.consume(m, a.sent[m])
		a.full[k] = p + 1
	}
}

// recordSent records that sender i has sent its first n chunks. It skips this rank, whose sender
// state is more precise.
func (a *arrivals) recordSent(i int, n uint32) {
	if n > a.sent[i] && i != a.ownIndex {
		a.sent[i] = n
	}
}

// recordFinished records that sender i has sent all its chunks.
func (a *arrivals) recordFinished(i int) { a.recordSent(i, a.g.base[a.Sub][i+1]-a.g.base[a.Sub][i]) }

// consume counts the first n chunks of sender i as no longer in the receive queue.
func (a *arrivals) consume(i int, n uint32) {
	if a.seen != nil && n > a.seen[i] && i != a.ownIndex {
		a.consumed += uint64(n - a.seen[i])
		a.seen[i] = n
	}
}

// consumeSent consumes all chunks that are known to have been sent.
func (a *arrivals) consumeSent() {
	for i, n := range a.sent {
		a.consume(i, n)
	}
}

// recordAllFinished records that every sender has sent all its chunks.
func (a *arrivals) recordAllFinished() {
	for i := range a.sent {
		a.recordFinished(i)
	}
}
