package p2p

// defaultSegment is the segment size of chain and binary.
const defaultSegment = 64 << 10

// tree sends the whole buffer down a tree in segments. A rank forwards each segment to all children as
// soon as it arrives.
func (b *planBuilder) tree(parent int, children []int) {
	for i, p := range b.pieces(b.whole()) {
		after := 0
		if parent >= 0 {
			b.recv(b.absolute(parent), p, false)
			after = i + 1
		}
		for _, c := range children {
			b.send(b.absolute(c), p, after)
		}
	}
}

// knomialTree returns the parent and the children of v in the k-nomial tree. In base k, the parent has
// the lowest non-zero digit of v cleared. Children with the largest subtrees come first.
func knomialTree(v, size, k int) (parent int, children []int) {
	parent = -1
	level := 1
	for level < size {
		if v/level%k != 0 {
			parent = v - v/level%k*level
			break
		}
		level *= k
	}
	for level /= k; level >= 1; level /= k {
		for d := 1; d < k && v+d*level < size; d++ {
			children = append(children, v+d*level)
		}
	}
	return parent, children
}

func binomial(b *planBuilder) {
	b.tree(knomialTree(b.relative(), b.Size, 2))
}

func knomial(b *planBuilder) {
	b.tree(knomialTree(b.relative(), b.Size, b.Radix))
}

func binary(b *planBuilder) {
	v := b.relative()
	parent := (v+1)/2 - 1
	var children []int
	for _, c := range []int{2*v + 1, 2*v + 2} {
		if c < b.Size {
			children = append(children, c)
		}
	}
	b.tree(parent, children)
}

func chain(b *planBuilder) {
	v := b.relative()
	var children []int
	if v+1 < b.Size {
		children = []int{v + 1}
	}
	b.tree(v-1, children)
}

// scatterAllgather is van de Geijn's Broadcast: the root scatters blocks down a binomial tree, then a
// ring gathers them. Blocks are numbered relative to the root.
func scatterAllgather(b *planBuilder) {
	v := b.relative()
	parent, children := knomialTree(v, b.Size, 2)
	if parent >= 0 {
		for _, p := range b.pieces(b.blocks(v, min(v+subtree(v, b.Size), b.Size))) {
			b.recv(b.absolute(parent), p, false)
		}
	}
	after := b.done()
	for _, c := range children {
		for _, p := range b.pieces(b.blocks(c, min(c+subtree(c, b.Size), b.Size))) {
			b.send(b.absolute(c), p, after)
		}
	}
	b.ring(v, b.absolute, false)
}

// subtree returns the size of the subtree of v in a binomial tree, including v.
func subtree(v, size int) int {
	if v == 0 {
		return size
	}
	return v & -v
}
