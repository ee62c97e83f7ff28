package p2p

import "github.com/allcast/allcast/internal/wire"

// Parallel aggregated trees (PAT, known from NCCL) run one binomial tree per block at the same time, all
// shifted against each other. In the tree of block b, rank b+v receives from rank b+v-d, where d is the
// lowest bit of v. All blocks with the same d go from one rank to another together. Far ranks
// exchange few blocks, and near ranks many.

// patPacked is the size up to which the blocks of a step travel as one piece, at the cost of a copy on
// each side.
const patPacked = 16 << 10

// patAllgather sends blocks down their trees, far ranks first.
func patAllgather(b *planBuilder) {
	at := make([]int64, b.Size) // where each block is
	for i := range at {
		at[i] = b.block(i).off
	}
	for d := b.core(); d >= 1; d /= 2 {
		to, from := (b.Rank+d)%b.Size, (b.Rank-d+b.Size)%b.Size
		after := b.done()
		// The tree of block b reaches rank to in this step if to is at distance v with lowest bit d.
		out, in := b.patBlocks(to, d), b.patBlocks(b.Rank, d)
		if total := b.sizeOf(out); len(out) > 1 && total <= patPacked {
			parts := make([]wire.Span, len(out))
			for k, i := range out {
				parts[k] = wire.Span{Off: at[i], Len: b.Counts[i]}
			}
			b.sendParts(to, parts, after)
		} else {
			for _, i := range out {
				for _, p := range b.pieces(span{at[i], b.Counts[i]}) {
					b.send(to, p, after)
				}
			}
		}
		if total := b.sizeOf(in); len(in) > 1 && total <= patPacked {
			into := b.scratch(total)
			b.recv(from, span{into, total}, false)
			for _, i := range in {
				b.copyAfter(into, b.block(i).off, b.Counts[i])
				at[i] = into
				into += b.Counts[i]
			}
		} else {
			for _, i := range in {
				for _, p := range b.pieces(b.block(i)) {
					b.recv(from, p, false)
				}
			}
		}
	}
}

// patReduceScatter sums blocks up their trees, near ranks first.
func patReduceScatter(b *planBuilder) {
	for d := 1; d < b.Size; d *= 2 {
		to, from := (b.Rank-d+b.Size)%b.Size, (b.Rank+d)%b.Size
		after := b.done()
		for _, i := range b.patBlocks(b.Rank, d) {
			for _, p := range b.pieces(b.block(i)) {
				b.send(to, p, after)
			}
		}
		for _, i := range b.patBlocks(from, d) {
			for _, p := range b.pieces(b.block(i)) {
				b.recv(from, p, true)
			}
		}
	}
}

// patBlocks lists the blocks whose trees connect a rank to its parent at distance d.
func (b *planBuilder) patBlocks(rank, d int) (blocks []int) {
	for v := d; v < b.Size; v += 2 * d {
		blocks = append(blocks, (rank-v+b.Size)%b.Size)
	}
	return blocks
}

func (b *planBuilder) sizeOf(blocks []int) (n int64) {
	for _, i := range blocks {
		n += b.Counts[i]
	}
	return n
}
