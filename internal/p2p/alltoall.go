package p2p

import (
	"slices"

	"github.com/allcast/allcast/internal/wire"
)

// sendBlock returns the block of the send buffer for a rank.
func (b *planBuilder) sendBlock(to int) span { return span{b.displs[to], b.Counts[to]} }

// recvBlock returns the block of the receive buffer from a rank.
func (b *planBuilder) recvBlock(from int) span {
	if b.recvDispls != nil {
		return span{b.plan.Input + b.recvDispls[from], b.Receives[from]}
	}
	return span{b.plan.Input + b.displs[from], b.Counts[from]}
}

// pairwiseLead is the number of steps that a rank may be ahead of its receives. It keeps links busy, and
// keeps all ranks from sending to the same one.
const pairwiseLead = 4

// pairwise sends each block straight to its rank: in step s to the rank at distance s.
func pairwise(b *planBuilder) {
	var ends []int // number of receives up to the end of each step
	for s := 1; s < b.Size; s++ {
		to, from := (b.Rank+s)%b.Size, (b.Rank-s+b.Size)%b.Size
		after := 0
		if s > pairwiseLead {
			after = ends[s-1-pairwiseLead]
		}
		for _, p := range b.pieces(b.sendBlock(to)) {
			b.send(to, p, after)
		}
		for _, p := range b.pieces(b.recvBlock(from)) {
			b.recv(from, p, false)
		}
		ends = append(ends, b.done())
	}
}

// bruckAlltoall is Bruck's Alltoall, with one message per power of two. Block i of a rank is the one that
// still has the distance i to go, and moves in the steps of the bits of i. A block travels through
// the scratch memory of the ranks on its way.
func bruckAlltoall(b *planBuilder) {
	n := b.Counts[0]
	at := make([]int64, b.Size) // where block i is
	for i := range at {
		at[i] = b.sendBlock((b.Rank + i) % b.Size).off
	}
	for d := 1; d < b.Size; d *= 2 {
		var parts []wire.Span
		var moved []int
		for i := d; i < b.Size; i++ {
			if i&d != 0 {
				parts = append(parts, wire.Span{Off: at[i], Len: n})
				moved = append(moved, i)
			}
		}
		to, from := (b.Rank+d)%b.Size, (b.Rank-d+b.Size)%b.Size
		b.sendParts(to, parts, b.done())
		into := b.scratch(n * int64(len(parts)))
		b.recv(from, span{into, n * int64(len(parts))}, false)
		for k, i := range moved {
			at[i] = into + n*int64(k)
		}
	}
	for i := 1; i < b.Size; i++ {
		b.copyAfter(at[i], b.recvBlock((b.Rank-i+b.Size)%b.Size).off, n)
	}
}

// sendParts sends several ranges as one piece. It drops empty ranges, which may lie behind the end of the memory.
func (b *planBuilder) sendParts(to int, parts []wire.Span, after int) {
	var n int64
	parts = slices.DeleteFunc(parts, func(p wire.Span) bool { return p.Len == 0 })
	for _, p := range parts {
		n += p.Len
	}
	b.plan.Sends = append(b.plan.Sends, Send{Len: n, To: int32(to), After: int32(after), Parts: parts})
}
