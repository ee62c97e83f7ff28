package mcast

import (
	"math/bits"

	"github.com/allcast/allcast/internal/step"
)

// barrier is the RNR barrier: recursive doubling for any number of ranks P. Let core be the largest
// power of two that does not exceed P. Each of the P-core ranks above it folds into a partner, the
// rank that is core lower. The core ranks run recursive doubling. Then the partners release the
// folded ranks.
//
//	round 0          folded rank -> partner, which greets it
//	round 1..k       core ranks r and r xor 2^(round-1), both ways
//	round k+1        partner -> folded rank
//
// A rank that waits for a message has sent one to the same rank in that round, or in round 0. A rank that made another
// call, or has closed the communicator, therefore always has a message to answer. The folded rank does not wait for its
// greeting.
//
// The barrier is also an all-reduce. It computes the minimum of the initial credit. It also detects
// different calls: each rank compares the digests it receives with its own, and the partners form a
// connected graph, so at least one rank sees any difference.
type barrier struct {
	rank, size int
	core       int
	last       int    // k+1
	round      int    // current round
	sent       bool   // whether this rank has sent its message of the current round
	received   uint64 // rounds whose message has arrived, one bit each; messages may arrive early
	grant      uint64 // minimum of the credit values received so far

	sentAt    step.Time // time of this rank's last message
	waited    step.Time // summed time from such a message to the partner's message
	exchanges step.Time // number of exchanges in waited
}

func newBarrier(rank, size int, grant uint64) barrier {
	b := barrier{rank: rank, size: size, core: core(size), last: bits.Len(uint(size)), grant: grant}
	b.settle()
	return b
}

// core returns the largest power of two that does not exceed size.
func core(size int) int { return 1 << (bits.Len(uint(size)) - 1) }

// peer returns the rank that this rank exchanges messages with in a round, or -1 for none.
func (b *barrier) peer(round int) int {
	switch {
	case round == 0 || round == b.last:
		if b.folded() {
			return b.rank - b.core
		}
		if b.rank+b.core < b.size {
			return b.rank + b.core
		}
	case !b.folded():
		return b.rank ^ 1<<(round-1)
	}
	return -1
}

func (b *barrier) folded() bool { return b.rank >= b.core }

// sends reports whether this rank sends in a round that it takes part in.
func (b *barrier) sends(round int) bool { return round != b.last || !b.folded() }

// waits reports whether this rank waits for a message in a round that it takes part in.
func (b *barrier) waits(round int) bool {
	return round != 0 && round != b.last || b.folded() == (round == b.last)
}

// settle skips rounds in which this rank has no peer.
func (b *barrier) settle() {
	for b.round <= b.last && b.peer(b.round) < 0 {
		b.round++
	}
}

func (b *barrier) done() bool { return b.round > b.last }

// accepts reports whether this rank expects a message of this round from rank from.
func (b *barrier) accepts(from, round int) bool {
	return round <= b.last && b.peer(round) == from && (b.waits(round) || round == 0)
}

// receive records a message, possibly of a later round than the current one.
func (b *barrier) receive(now step.Time, round int, grant uint64) {
	if round == b.round && b.sent && round != 0 { // the message of round 0 is no answer: its sender may just be late
		b.waited += now - b.sentAt
		b.exchanges++
	}
	b.received |= 1 << round
	// Merging a message of a later round is harmless: the minimum is idempotent.
	b.grant = min(b.grant, grant)
}

// awaits reports whether this rank still waits for a message of another rank.
func (b *barrier) awaits(rank int) bool {
	for round := b.round; round <= b.last; round++ {
		if b.peer(round) == rank && b.waits(round) && b.received&(1<<round) == 0 {
			return true
		}
	}
	return false
}

// next advances as far as the received messages allow and returns the next message to send, if any.
func (b *barrier) next(now step.Time) (to, round int, ok bool) {
	for !b.done() {
		if b.sends(b.round) && !b.sent {
			b.sent, b.sentAt = true, now
			return b.peer(b.round), b.round, true
		}
		if b.waits(b.round) && b.received&(1<<b.round) == 0 {
			return 0, 0, false
		}
		b.round++
		b.sent = false
		b.settle()
	}
	return 0, 0, false
}
