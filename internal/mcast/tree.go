package mcast

import (
	"math/bits"
	"slices"
)

// parent and appendChildren define the static control tree of a communicator: a
// binomial tree over the barrier's core, with the folded ranks below their
// partners. Its edges are barrier partners, so it needs no connection of its own.
func parent(rank, size int) int {
	if rank == 0 {
		return -1
	}
	if core := 1 << (bits.Len(uint(size)) - 1); rank >= core {
		return rank - core
	}
	return rank & (rank - 1)
}

func appendChildren(to []int, rank, size int) []int {
	core := 1 << (bits.Len(uint(size)) - 1)
	if rank >= core {
		return to
	}
	for bit := 1; bit < core && rank&bit == 0; bit <<= 1 {
		to = append(to, rank|bit)
	}
	if rank+core < size {
		to = append(to, rank+core)
	}
	return to
}

// AppendPeers appends the ranks that rank exchanges reliable messages with, in
// operations of any Geometry over size ranks: ring neighbours, barrier partners
// and (the same) tree neighbours. Chain neighbours depend on the Geometry.
func AppendPeers(to []int, rank, size int) []int {
	if size == 1 {
		return to
	}
	n := len(to)
	add := func(r int) {
		for _, have := range to[n:] {
			if have == r {
				return
			}
		}
		if r != rank {
			to = append(to, r)
		}
	}
	add((rank + size - 1) % size)
	add((rank + 1) % size)
	b := newBarrier(rank, size, 0)
	for round := 0; round <= b.last; round++ {
		if p := b.peer(round); p >= 0 {
			add(p)
		}
	}
	return to
}

// sentTree is the announcement that everything has been sent: each rank tells
// its parent once its subtree has sent all, and the top tells everyone. Two
// messages a rank at most, whatever the number of chains: of a Broadcast only those
// above the root have something to tell.
type sentTree struct {
	parent   int
	children []int
	waiting  int    // children not heard of
	heard    []bool // by child
	own      bool   // we have sent all
	up       bool   // our parent was told, or knows
	silent   bool   // nobody in our subtree sends, as our parent knows
	all      bool   // everything was sent, as we know for certain
}

// newSentTree makes a rank's part of it; only is the one rank that sends, -1 if there may
// be others.
func newSentTree(rank, size, only int) sentTree {
	t := sentTree{parent: parent(rank, size), children: appendChildren(nil, rank, size)}
	t.waiting, t.heard = len(t.children), make([]bool, len(t.children))
	if only < 0 {
		return t
	}
	t.silent = true
	below := -1 // which child the rank that sends is below of, or is
	for r := only; r >= 0; r = parent(r, size) {
		if r == rank {
			t.silent = false
			break
		}
		below = r
	}
	for i, c := range t.children {
		if t.silent || c != below {
			t.heard[i] = true
			t.waiting--
		}
	}
	return t
}

// hear notes that a child's subtree has sent all.
func (t *sentTree) hear(child int) bool {
	i := slices.Index(t.children, child)
	if i < 0 || t.heard[i] {
		return false
	}
	t.heard[i] = true
	t.waiting--
	return true
}
