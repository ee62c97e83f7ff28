package mcast

import "github.com/allcast/allcast/internal/wire"

// arrivals is what a Collective knows of one subgroup beyond its Placement: how far senders are known to
// have come, and which chunks the slow path deals with.
type arrivals struct {
	*Placement
	ownIndex int // our own index among the senders, or -1

	// sent[i] is how many of sender i's chunks in this subgroup are known to have
	// been sent. A datagram proves it for those before it: a rank sends in order.
	sent []uint32
	// seen[i] is how many of them no longer occupy our receive queue: they were
	// placed, or a later datagram overtook them. Those we know only from the reliable
	// path may still be waiting there. For credit; nil without.
	seen []uint32
	full []int32 // per chain: members before this position are known to have sent all

	asked *Bitmap // chunks asked of the left neighbour that are not here; nil before the first

	missing  uint32 // chunks not reported to be in place
	received uint64 // chunks placed by datagrams
	consumed uint64 // the sum of seen
	late     uint64 // chunks that came by datagram after they had been asked for
}

func newArrivals(g *Geometry, p *Placement, rank int, credit bool) arrivals {
	a := arrivals{
		Placement: p, ownIndex: int(g.index[rank]), missing: p.Len() - p.own.N,
		sent: make([]uint32, len(g.senders)), full: make([]int32, len(g.chains.members)),
	}
	if credit {
		a.seen = make([]uint32, len(g.senders))
	}
	return a
}

// came learns that datagrams have brought chunks q of sender i.
func (a *arrivals) came(i int, q wire.Range) {
	a.missing -= q.N
	a.received += uint64(q.N)
	a.saw(i, q.PSN+q.N-a.g.base[a.Sub][i])
}

// saw learns from the n-th chunk of sender i that those before it were sent, and
// that all before its direct predecessor in the chain have finished: a rank
// activates its successor only once its own predecessor has sent all.
func (a *arrivals) saw(i int, n uint32) {
	a.note(i, n)
	a.pass(i, n)
	c := &a.g.chains
	k := c.of[i]
	for p := a.full[k]; p < c.pos[i]-1; p++ {
		m := c.members[k][p]
		a.finished(m)
		a.pass(m, a.sent[m])
		a.full[k] = p + 1
	}
}

// note learns that the first n chunks of sender i were sent. The sender of this rank knows better
// what this rank has sent.
func (a *arrivals) note(i int, n uint32) {
	if n > a.sent[i] && i != a.ownIndex {
		a.sent[i] = n
	}
}

// finished learns that sender i has sent all.
func (a *arrivals) finished(i int) { a.note(i, a.g.base[a.Sub][i+1]-a.g.base[a.Sub][i]) }

// pass counts the first n chunks of sender i as no longer in our receive queue.
func (a *arrivals) pass(i int, n uint32) {
	if a.seen != nil && n > a.seen[i] && i != a.ownIndex {
		a.consumed += uint64(n - a.seen[i])
		a.seen[i] = n
	}
}

// passAll does so for all chunks that are known to have been sent.
func (a *arrivals) passAll() {
	for i, n := range a.sent {
		a.pass(i, n)
	}
}

// noteAll learns that everything was sent.
func (a *arrivals) noteAll() {
	for i := range a.sent {
		a.finished(i)
	}
}
