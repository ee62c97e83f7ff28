package p2p

// linearGather sends each block straight to the root.
func linearGather(b *planBuilder) {
	if b.Rank != b.Root {
		for _, p := range b.pieces(span{0, b.plan.Input}) {
			b.send(b.Root, p, 0)
		}
		return
	}
	for i := 1; i < b.Size; i++ {
		from := b.absolute(i)
		block := b.block(from)
		block.off += b.plan.Input
		for _, p := range b.pieces(block) {
			b.recv(from, p, false)
		}
	}
}

// linearScatter sends each block straight to its rank.
func linearScatter(b *planBuilder) {
	if b.Rank != b.Root {
		for _, p := range b.pieces(span{b.plan.Input, b.plan.Output}) {
			b.recv(b.Root, p, false)
		}
		return
	}
	for i := 1; i < b.Size; i++ {
		to := b.absolute(i)
		for _, p := range b.pieces(b.block(to)) {
			b.send(to, p, 0)
		}
	}
}

// subtreeBlocks returns the blocks of the binomial subtree of v. The ranks of a subtree are consecutive
// from the root on, so that their blocks are one span, or two if the numbers wrap.
func (b *planBuilder) subtreeBlocks(v int) []span {
	return b.wrapping(b.absolute(v), min(subtree(v, b.Size), b.Size-v))
}

// transit returns a function that finds the blocks of a subtree in scratch memory, in the order of
// subtreeBlocks, for a rank that passes on the blocks of its own subtree.
func (b *planBuilder) transit() func(span) span {
	own := b.subtreeBlocks(b.relative())
	var total int64
	for _, s := range own {
		total += s.n
	}
	at := b.scratch(total)
	return func(s span) span {
		into := at
		for _, o := range own {
			if s.off >= o.off && s.off+s.n <= o.off+o.n {
				return span{into + s.off - o.off, s.n}
			}
			into += o.n
		}
		panic("p2p: a subtree has a block of another")
	}
}

// binomialGather collects the blocks of subtrees on the way to the root.
func binomialGather(b *planBuilder) {
	v := b.relative()
	parent, children := knomialTree(v, b.Size, 2)
	own := func(s span) span { return span{b.plan.Input + s.off, s.n} } // the root's receive buffer
	switch {
	case parent >= 0 && len(children) == 0:
		own = func(span) span { return span{0, b.plan.Input} } // straight from the send buffer
	case parent >= 0:
		own = b.transit()
		b.copyBefore(0, own(b.block(b.Rank)).off, b.plan.Input)
	}
	for i := len(children) - 1; i >= 0; i-- { // small subtrees are complete first
		for _, s := range b.subtreeBlocks(children[i]) {
			b.recv(b.absolute(children[i]), own(s), false)
		}
	}
	if parent < 0 {
		return
	}
	after := b.done()
	for _, s := range b.subtreeBlocks(v) {
		b.send(b.absolute(parent), own(s), after)
	}
}

// binomialScatter passes the blocks of subtrees on from the root.
func binomialScatter(b *planBuilder) {
	v := b.relative()
	parent, children := knomialTree(v, b.Size, 2)
	own := func(s span) span { return s } // the root's send buffer
	switch {
	case parent >= 0 && len(children) == 0:
		own = func(span) span { return span{b.plan.Input, b.plan.Output} } // straight into the receive buffer
	case parent >= 0:
		own = b.transit()
		b.copyAfter(own(b.block(b.Rank)).off, b.plan.Input, b.plan.Output)
	}
	if parent >= 0 {
		for _, s := range b.subtreeBlocks(v) {
			b.recv(b.absolute(parent), own(s), false)
		}
	}
	after := b.done()
	for _, c := range children {
		for _, s := range b.subtreeBlocks(c) {
			b.send(b.absolute(c), own(s), after)
		}
	}
}

// reduceTree sums the whole buffer up a tree in segments. A rank passes a segment on as soon as it has
// added those of all children.
func (b *planBuilder) reduceTree(parent int, children []int) {
	for _, p := range b.pieces(b.whole()) {
		for _, c := range children {
			b.recv(b.absolute(c), p, true)
		}
		if parent >= 0 {
			b.send(b.absolute(parent), p, b.done())
		}
	}
}

func binomialReduce(b *planBuilder) {
	parent, children := knomialTree(b.relative(), b.Size, 2)
	reversed := make([]int, 0, len(children))
	for i := len(children) - 1; i >= 0; i-- { // small subtrees are complete first
		reversed = append(reversed, children[i])
	}
	b.reduceTree(parent, reversed)
}

func chainReduce(b *planBuilder) {
	v := b.relative()
	var children []int
	if v+1 < b.Size {
		children = []int{v + 1}
	}
	b.reduceTree(v-1, children)
}

// ringReduce sums the blocks along the ring, and then collects them at the root.
func ringReduce(b *planBuilder) {
	ringReduceScatter(b)
	if b.Rank != b.Root {
		after := b.done()
		pieces := b.pieces(b.block(b.Rank))
		for i, p := range pieces {
			b.send(b.Root, p, after-len(pieces)+i+1)
		}
		return
	}
	for i := 1; i < b.Size; i++ {
		from := b.absolute(i)
		for _, p := range b.pieces(b.block(from)) {
			b.recv(from, p, false)
		}
	}
}
