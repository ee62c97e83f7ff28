package p2p

// ring gathers: in step s, rank v passes block v-s on to its right and gets block
// v-s-1 from its left. A segment goes on as soon as it is there. If the receives before
// the first step end with block v, its segments go on as soon as each of them is there.
func (b *build) ring(v int, rank func(int) int, follows bool) {
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

func ringAllgather(b *build) { b.ring(b.Rank, func(v int) int { return v }, false) }

// ringReduceScatter: in step s, rank r adds what comes for block r-2-s and
// passes on block r-1-s, which it completed the step before.
func ringReduceScatter(b *build) {
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

func ringAllreduce(b *build) {
	ringReduceScatter(b)
	b.ring(b.Rank, func(v int) int { return v }, true)
}

// linearAllgather sends the own block to everybody.
func linearAllgather(b *build) {
	for i := 1; i < b.Size; i++ {
		b.exchange((b.Rank+i)%b.Size, []span{b.block(b.Rank)}, (b.Rank-i+b.Size)%b.Size, []span{b.block(b.Rank - i)}, false)
	}
	for i := range b.plan.Sends {
		b.plan.Sends[i].After = 0
	}
}

// bruck's Allgather: with distances 1, 2, 4, ... each rank fetches as many blocks
// as it has from the rank that far to the right.
func bruck(b *build) {
	for d := 1; d < b.Size; d *= 2 {
		n := min(d, b.Size-d)
		to, from := (b.Rank-d+b.Size)%b.Size, (b.Rank+d)%b.Size
		b.exchange(to, b.circle(b.Rank, n), from, b.circle(b.Rank+d, n), false)
	}
}

// dissemination is a barrier: after log P rounds everybody has heard, directly
// or not, of everybody.
func dissemination(b *build) {
	for d := 1; d < b.Size; d *= 2 {
		b.exchange((b.Rank+d)%b.Size, []span{{}}, (b.Rank-d+b.Size)%b.Size, []span{{}}, false)
	}
}
