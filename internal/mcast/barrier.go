package mcast

import "math/bits"

// barrier is the RNR barrier: recursive doubling, any P. Let core be the largest
// power of two not above P. Each of the P-core ranks beyond it folds into its
// partner core below; the core doubles; the partner releases the folded rank.
//
//	round 0          folded rank -> partner
//	round 1..k       core ranks r and r xor 2^(round-1), both ways
//	round k+1        partner -> folded rank
//
// It is an all-reduce at the same time: of the least initial credit, and of the
// digest of the call, in the sense that a rank compares what it hears with its
// own; the partners form a connected graph, so any difference is seen somewhere.
type barrier struct {
	rank, size int
	core       int
	last       int    // k+1
	round      int    // the round we are in
	sent       bool   // our message of this round is out
	got        uint64 // rounds heard of, one bit each; messages may come early
	grant      uint64 // the least credit heard of so far
}

func newBarrier(rank, size int, grant uint64) barrier {
	k := bits.Len(uint(size)) - 1
	b := barrier{rank: rank, size: size, core: 1 << k, last: k + 1, grant: grant}
	b.settle()
	return b
}

// peer is whom we exchange with in a round, -1 for nobody.
func (b *barrier) peer(round int) int {
	switch {
	case round == 0 || round == b.last:
		if b.rank >= b.core {
			return b.rank - b.core
		}
		if b.rank+b.core < b.size {
			return b.rank + b.core
		}
	case b.rank < b.core:
		return b.rank ^ 1<<(round-1)
	}
	return -1
}

func (b *barrier) folded() bool { return b.rank >= b.core }

// sends and waits say what a rank does in a round that it takes part in.
func (b *barrier) sends(round int) bool {
	switch round {
	case 0:
		return b.folded()
	case b.last:
		return !b.folded()
	}
	return true
}

func (b *barrier) waits(round int) bool {
	switch round {
	case 0:
		return !b.folded()
	case b.last:
		return b.folded()
	}
	return true
}

// settle moves past rounds that have no peer for us.
func (b *barrier) settle() {
	for b.round <= b.last && b.peer(b.round) < 0 {
		b.round++
	}
}

func (b *barrier) done() bool { return b.round > b.last }

// accepts reports whether a message of this round from this rank belongs here.
func (b *barrier) accepts(from, round int) bool {
	return round <= b.last && b.peer(round) == from && b.waits(round)
}

// hear notes a message; it may be of a later round than ours.
func (b *barrier) hear(round int, grant uint64) {
	b.got |= 1 << round
	// Merging early is harmless: a minimum does not mind being told twice.
	b.grant = min(b.grant, grant)
}

// next returns the message to send now, if any, having moved on as far as
// what was heard allows.
func (b *barrier) next() (to, round int, ok bool) {
	for !b.done() {
		if b.sends(b.round) && !b.sent {
			b.sent = true
			return b.peer(b.round), b.round, true
		}
		if b.waits(b.round) && b.got&(1<<b.round) == 0 {
			return 0, 0, false
		}
		b.round++
		b.sent = false
		b.settle()
	}
	return 0, 0, false
}
