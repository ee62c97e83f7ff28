package sim

import (
	"math/rand/v2"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

// An exchange is a collective in which every rank has blocks for certain ranks, and possibly for itself.
// The buffer of a rank holds the blocks that it sends, then those that it receives, both by rank, and
// then the scratch memory of its plan.
type exchange struct {
	kind  wire.CallKind
	ranks int
	root  int
	size  func(from, to int) int64 // size of a block; 0 if there is none
}

// newExchange returns the blocks of a collective, or nil if its ranks share one layout. Blocks whose size
// is private have 0 to twice the given bytes.
func newExchange(kind wire.CallKind, ranks, root int, bytes int64, seed uint64) *exchange {
	x := &exchange{kind: kind, ranks: ranks, root: root}
	block := func(int, int) int64 { return bytes }
	if kind.Private() {
		block = func(from, to int) int64 { return privateSize(seed, from, to, bytes) }
	}
	exists := func(int, int) bool { return true }
	switch kind {
	case wire.Gather, wire.Gatherv:
		exists = func(_, to int) bool { return to == root }
	case wire.Scatter, wire.Scatterv:
		exists = func(from, _ int) bool { return from == root }
	case wire.Send:
		exists = func(from, to int) bool { return from^1 == to }
	case wire.Alltoall, wire.Alltoallv:
	default:
		return nil
	}
	x.size = func(from, to int) int64 {
		if !exists(from, to) {
			return 0
		}
		return block(from, to)
	}
	return x
}

// privateSize draws the size of a block. Many blocks are empty, because programs send such blocks too.
func privateSize(seed uint64, from, to int, bytes int64) int64 {
	r := rand.NewPCG(seed, uint64(from)<<32|uint64(to))
	if r.Uint64()%8 == 0 {
		return 0
	}
	return int64(r.Uint64() % (2*uint64(bytes) + 1))
}

// known returns the sizes that a rank passes to a call: those of all ranks, or only those that it knows.
func (x *exchange) known(rank int) (counts, receives []int64) {
	counts = make([]int64, x.ranks)
	for i := range counts {
		switch x.kind {
		case wire.Gather, wire.Gatherv:
			counts[i] = x.size(i, x.root)
		case wire.Scatter, wire.Scatterv:
			counts[i] = x.size(x.root, i)
		default:
			counts[i] = x.size(rank, i)
			receives = append(receives, x.size(i, rank))
		}
		if x.kind.Private() && x.kind.Rooted() && rank != x.root && i != rank {
			counts[i] = 0
		}
	}
	return counts, receives
}

// forEach calls f for every block in the buffer of a rank, in order, without empty ones.
func (x *exchange) forEach(rank int, f func(from, to int, n int64, received bool)) {
	for to := range x.ranks {
		if n := x.size(rank, to); n > 0 {
			f(rank, to, n, false)
		}
	}
	for from := range x.ranks {
		if n := x.size(from, rank); n > 0 {
			f(from, rank, n, true)
		}
	}
}

// forEachCrossing calls f for every block that has to leave its host.
func (x *exchange) forEachCrossing(f func(from, to int, n int64)) {
	for from := 0; x != nil && from < x.ranks; from++ {
		for to := range x.ranks {
			if n := x.size(from, to); from != to && n > 0 {
				f(from, to, n)
			}
		}
	}
}

// stream returns the number of a block's random bytes.
func (x *exchange) stream(from, to int) int { return from*x.ranks + to }

// layout returns the layout of a rank's buffer. It is the same for all ranks unless there are blocks for
// single ranks or scratch memory.
func (c *collective) layout(rank int, p *p2p.Plan) *blocks {
	var scratch int64
	if p != nil {
		scratch = p.Scratch
	}
	if c.exchange == nil && scratch == 0 {
		return &c.blocks
	}
	var counts []int64
	if c.exchange == nil {
		counts = append(counts, c.counts...)
	} else {
		c.exchange.forEach(rank, func(_, _ int, n int64, _ bool) { counts = append(counts, n) })
	}
	// Packets are cut at chunks of blocks, in scratch memory as well. With blocks of different sizes, only
	// blocks that are copied to their place afterwards are there.
	if b := newBlocks(counts, c.chunk, c.move); b.uniform {
		for ; scratch > 0; scratch -= counts[0] {
			counts = append(counts, counts[0])
		}
	} else if p != nil && c.reduces { // whole sums
		for ; scratch > 0; scratch -= p.Bytes {
			counts = append(counts, p.Bytes)
		}
	} else if p != nil {
		for _, a := range p.After {
			counts = append(counts, a.Len)
		}
	}
	b := newBlocks(counts, c.chunk, c.move)
	return &b
}

// startMail starts the next message of a sendrecv on this host: an even rank sends a message to the next
// rank, and that rank then sends one back. A rank without a partner is done at once.
func (h *host) startMail(c *collective) error {
	rank := c.rankOf(h.id)
	partner := rank ^ 1
	if partner >= len(c.members) {
		h.ended(c, outcome{})
		return nil
	}
	if c.sends(rank) {
		return h.node.StartSend(ns(h.w.now), c.comm, c.req, partner, c.req, c.exchange.size(rank, partner))
	}
	return h.node.StartRecv(ns(h.w.now), c.comm, c.req, partner, c.req, c.exchange.size(partner, rank))
}

// sends reports whether the next message of a sendrecv is one that the rank sends.
func (c *collective) sends(rank int) bool { return (rank%2 == 0) != c.ranks[rank].half }
