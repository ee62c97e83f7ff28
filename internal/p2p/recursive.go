package p2p

import "math/bits"

// Recursive algorithms work on the core, the largest power of two of ranks. Rank core+i folds into
// rank i, which acts for both.

func (b *planBuilder) core() int { return 1 << (bits.Len(uint(b.Size)) - 1) }

// cube returns the spans of the blocks that the core ranks [lo, lo+n) act for.
func (b *planBuilder) cube(lo, n int) []span {
	core := b.core()
	out := []span{b.blocks(lo, lo+n)}
	if f := min(lo+n+core, b.Size); f > lo+core {
		out = append(out, b.blocks(lo+core, f))
	}
	return out
}

// doublingAllgather exchanges the blocks of two halves of a growing cube.
func doublingAllgather(b *planBuilder) { b.doubling([]span{b.block(b.Rank)}) }

// doubling gathers blocks. fold holds the spans that a folded rank contributes first.
func (b *planBuilder) doubling(fold []span) {
	core, r := b.core(), b.Rank
	if r >= core {
		b.exchange(r-core, fold, r-core, []span{b.whole()}, false)
		return
	}
	if fold != nil && r+core < b.Size {
		b.exchange(r+core, nil, r+core, []span{b.block(r + core)}, false)
	}
	for d := 1; d < core; d *= 2 {
		lo := r &^ (d - 1)
		b.exchange(r^d, b.cube(lo, d), r^d, b.cube(lo^d, d), false)
	}
	if r+core < b.Size {
		b.exchange(r+core, []span{b.whole()}, r+core, nil, false)
	}
}

// halvingReduceScatter sums halves of a shrinking cube.
func halvingReduceScatter(b *planBuilder) { b.halving(true) }

// halving reduces. If scatter is set, folded ranks get their block.
func (b *planBuilder) halving(scatter bool) {
	core, r := b.core(), b.Rank
	if r >= core {
		var in []span
		if scatter {
			in = []span{b.block(r)}
		}
		b.exchange(r-core, []span{b.whole()}, r-core, in, false)
		return
	}
	if r+core < b.Size {
		b.exchange(r+core, nil, r+core, []span{b.whole()}, true)
	}
	for d := core / 2; d >= 1; d /= 2 {
		lo := r &^ (d - 1)
		b.exchange(r^d, b.cube(lo^d, d), r^d, b.cube(lo, d), true)
	}
	if scatter && r+core < b.Size {
		b.exchange(r+core, []span{b.block(r + core)}, r+core, nil, false)
	}
}

// halvingAllreduce leaves the block of a folded rank with its partner between the two stages.
func halvingAllreduce(b *planBuilder) {
	b.halving(false)
	if b.Rank >= b.core() {
		b.exchange(b.Rank-b.core(), nil, b.Rank-b.core(), []span{b.whole()}, false)
		return
	}
	b.doubling(nil)
}

// doublingBarrier has the pattern of the RNR barrier, so it needs no connections beyond those of a
// multicast collective.
func doublingBarrier(b *planBuilder) {
	core, r := b.core(), b.Rank
	none := []span{{}}
	if r >= core {
		b.exchange(r-core, none, r-core, none, false)
		return
	}
	if r+core < b.Size {
		b.exchange(r+core, nil, r+core, none, false)
	}
	for d := 1; d < core; d *= 2 {
		b.exchange(r^d, none, r^d, none, false)
	}
	if r+core < b.Size {
		b.exchange(r+core, none, r+core, nil, false)
	}
}

// doublingAllreduce exchanges whole buffers between partners at growing distances. Each sum has memory of its
// own, because the partner's piece may arrive while the last sum is still being sent.
func doublingAllreduce(b *planBuilder) {
	core, r, sum := b.core(), b.Rank, b.whole()
	if r >= core {
		b.exchange(r-core, []span{sum}, r-core, []span{b.whole()}, false)
		return
	}
	add := func(from int) {
		into := span{b.scratch(sum.n), sum.n}
		for _, p := range b.pieces(into) {
			b.recv(from, p, true)
			last := &b.plan.Recvs[b.done()-1]
			last.Apart, last.Base = true, p.off-into.off+sum.off
		}
		sum = into
	}
	if r+core < b.Size {
		add(r + core)
	}
	for d := 1; d < core; d *= 2 {
		b.exchange(r^d, []span{sum}, r^d, nil, false)
		add(r ^ d)
	}
	b.copyAfter(sum.off, 0, sum.n)
	if r+core < b.Size {
		b.exchange(r+core, []span{sum}, r+core, nil, false)
	}
}
