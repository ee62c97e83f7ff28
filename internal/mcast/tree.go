package mcast

import "slices"

// TreeParent returns the parent of a rank in the static control tree of a communicator, or -1 at the top. The
// tree is a binomial tree over the barrier's core, with the folded ranks below their partners. Its edges
// connect barrier partners, so the tree needs no connections of its own.
func TreeParent(rank, size int) int {
	if rank == 0 {
		return -1
	}
	if c := core(size); rank >= c {
		return rank - c
	}
	return rank & (rank - 1)
}

// AppendTreeChildren appends the children of a rank in the control tree.
func AppendTreeChildren(to []int, rank, size int) []int {
	c := core(size)
	if rank >= c {
		return to
	}
	for bit := 1; bit < c && rank&bit == 0; bit <<= 1 {
		to = append(to, rank|bit)
	}
	if rank+c < size {
		to = append(to, rank+c)
	}
	return to
}

// AppendPeers appends the ranks that rank exchanges reliable messages with, for any Geometry over
// size ranks: its ring neighbours and its barrier partners, which include its tree neighbours. Chain
// neighbours depend on the Geometry and are not included.
func AppendPeers(to []int, rank, size int) []int {
	n, b := len(to), newBarrier(rank, size, 0)
	peers := []int{(rank + size - 1) % size, (rank + 1) % size}
	for round := range b.last + 1 {
		peers = append(peers, b.peer(round))
	}
	for _, p := range peers {
		if p >= 0 && p != rank && !slices.Contains(to[n:], p) {
			to = append(to, p)
		}
	}
	return to
}

// sentTree announces that everything has been sent. Each rank tells its parent once its subtree has
// sent everything, and the top tells all ranks. A silent subtree does not report.
type sentTree struct {
	parent   int
	children []int
	heard    []bool // children that have reported
	ownSent  bool   // whether this rank has sent everything
	reported bool   // whether the parent knows that the subtree has finished
	silent   bool   // whether no rank of the subtree sends, which the parent knows
	allSent  bool   // whether all ranks are known to have sent everything
}

// newSentTree returns a rank's part of the tree. only is the one sending rank, or -1 if several
// ranks may send.
func newSentTree(rank, size, only int) sentTree {
	silent := func(top int) bool { // whether no rank of the subtree below top sends
		r := only
		for r > top {
			r = TreeParent(r, size)
		}
		return only >= 0 && r != top
	}
	t := sentTree{parent: TreeParent(rank, size), children: AppendTreeChildren(nil, rank, size), silent: silent(rank)}
	for _, c := range t.children {
		t.heard = append(t.heard, silent(c))
	}
	return t
}

// childFinished records that a child's subtree has sent everything. It returns false for a repetition.
func (t *sentTree) childFinished(child int) bool {
	i := slices.Index(t.children, child)
	if i < 0 || t.heard[i] {
		return false
	}
	t.heard[i] = true
	return true
}
