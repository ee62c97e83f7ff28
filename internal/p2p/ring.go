package p2p

// ring gathers: in step s, rank v sends block v-s to its right and receives block v-s-1 from its left.
// A rank forwards a segment as soon as it arrives. If follows is set, the receives before the first
// step end with block v. The rank then forwards each segment of block v as soon as it arrives.
func (b *planBuilder) ring(v int, rank func(int) int, follows bool) {
	left, right := rank((v+b.Size-1)%b.Size), rank((v+1)%b.Size)
	before := b.done()
	for s := range b.Size - 1 {
		first := b.done()
		pieces := b.pieces(b.block(v - s))
		for i, p := range pieces {
			after := before
			if s > 0 || follows {
				after = first - len(pieces) + i + 1
			}
			b.send(right, p, after)
		}
		for _, p := range b.pieces(b.block(v - s - 1)) {
			b.recv(left, p, false)
		}
	}
}

func ringAllgather(b *planBuilder) { b.ring(b.Rank, func(v int) int { return v }, false) }

// ringReduceScatter sums along the ring: in step s, rank r adds the piece that arrives for block r-2-s
// and sends block r-1-s, which it completed in the step before.
func ringReduceScatter(b *planBuilder) {
	r := b.Rank
	left, right := (r+b.Size-1)%b.Size, (r+1)%b.Size
	for s := range b.Size - 1 {
		first := b.done()
		for i, p := range b.pieces(b.block(r - 1 - s)) {
			after := 0
			if s > 0 {
				after = first - len(b.pieces(b.block(r-1-s))) + i + 1
			}
			b.send(right, p, after)
		}
		for _, p := range b.pieces(b.block(r - 2 - s)) {
			b.recv(left, p, true)
		}
	}
}

func ringAllreduce(b *planBuilder) {
	ringReduceScatter(b)
	b.ring(b.Rank, func(v int) int { return v }, true)
}

// linearAllgather sends this rank's block to every other rank.
func linearAllgather(b *planBuilder) {
	for i := 1; i < b.Size; i++ {
		to, from := (b.Rank+i)%b.Size, (b.Rank-i+b.Size)%b.Size
		b.exchange(to, []span{b.block(b.Rank)}, from, []span{b.block(b.Rank - i)}, false)
	}
	for i := range b.plan.Sends {
		b.plan.Sends[i].After = 0
	}
}

// bruck is Bruck's Allgather: with distances 1, 2, 4, ... each rank receives as many blocks as it has
// from the rank at that distance to the right.
func bruck(b *planBuilder) {
	for d := 1; d < b.Size; d *= 2 {
		n := min(d, b.Size-d)
		to, from := (b.Rank-d+b.Size)%b.Size, (b.Rank+d)%b.Size
		b.exchange(to, b.wrapping(b.Rank, n), from, b.wrapping(b.Rank+d, n), false)
	}
}

// dissemination is a barrier: after log P rounds every rank depends on every other.
func dissemination(b *planBuilder) {
	for d := 1; d < b.Size; d *= 2 {
		b.exchange((b.Rank+d)%b.Size, []span{{}}, (b.Rank-d+b.Size)%b.Size, []span{{}}, false)
	}
}
