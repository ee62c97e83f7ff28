package paper

import (
	"math/bits"

	"github.com/allcast/allcast/internal/p2p"
)

// The Broadcasts of UCC 1.3, which the paper's Figure 11 measures against: UCC's documentation calls them
// "scatter-allgather k-nomial" and "double binary tree". Both send whole messages. They are written after the
// description of their schedules, and run on the simulated testbed only.

// uccRadix returns the radix that UCC chooses by default, with one rank per host: the first from 3 on with the fewest
// ranks outside the core.
func uccRadix(size int) int {
	best, fewest := 2, size
	for radix := min(3, size); radix <= size; radix++ {
		if outside := size - uccCore(size, radix); outside < fewest {
			best, fewest = radix, outside
		}
	}
	return best
}

// uccCore returns the number of ranks in full subtrees.
func uccCore(size, radix int) int {
	full := 1
	for full*radix <= size {
		full *= radix
	}
	return size / full * full
}

// uccKnomial is the Broadcast that UCC uses from 32 KiB on: a k-nomial scatter, and a recursive exchange of the same
// radix. Only a core of full subtrees takes part. Every rank outside it receives the whole buffer from a proxy in the
// end. Radix 0 means UCC's choice.
func uccKnomial(radix int) func(p2p.Spec) (*p2p.Plan, error) {
	return func(s p2p.Spec) (*p2p.Plan, error) {
		radix := radix
		if radix == 0 {
			radix = uccRadix(s.Size)
		}
		core := uccCore(s.Size, radix)
		k := knomialBroadcast{spec: s, radix: radix, core: core, extra: s.Size - core}
		k.plan()
		return p2p.Schedule("ucc-knomial", s, k.sends, k.recvs)
	}
}

// knomialBroadcast is the schedule of one rank.
type knomialBroadcast struct {
	spec        p2p.Spec
	radix       int
	core, extra int // ranks that exchange, and ranks that only receive
	sends       []p2p.Send
	recvs       []p2p.Recv
}

// rank returns the rank of a place in the core. The first ranks are proxies, and the rank after each is its extra.
func (k *knomialBroadcast) rank(place int) int32 {
	if place < k.extra {
		return int32(2 * place)
	}
	return int32(place + k.extra)
}

// at returns the offset of the block of a place.
func (k *knomialBroadcast) at(place int) int64 {
	return k.spec.Bytes * int64(min(place, k.core)) / int64(k.core)
}

func (k *knomialBroadcast) send(place, first, end int) {
	k.sends = append(k.sends, p2p.Send{
		Off: k.at(first), Len: k.at(end) - k.at(first), To: k.rank(place), After: int32(len(k.recvs)),
	})
}

func (k *knomialBroadcast) recv(place, first, end int) {
	k.recvs = append(k.recvs, p2p.Recv{Off: k.at(first), Len: k.at(end) - k.at(first), From: k.rank(place)})
}

func (k *knomialBroadcast) plan() {
	r := k.spec.Rank
	switch {
	case r < 2*k.extra && r%2 == 1:
		k.recvs = []p2p.Recv{{Len: k.spec.Bytes, From: int32(r - 1)}}
		return
	case r < 2*k.extra:
		k.scatter(r / 2)
		k.gather(r / 2)
		k.sends = append(k.sends, p2p.Send{Len: k.spec.Bytes, To: int32(r + 1), After: int32(len(k.recvs))})
	default:
		k.scatter(r - k.extra)
		k.gather(r - k.extra)
	}
}

// scatter passes the blocks of subtrees on, the largest first. The blocks of a subtree are consecutive.
func (k *knomialBroadcast) scatter(place int) {
	distance := 1
	for distance*k.radix <= k.core {
		distance *= k.radix
	}
	for ; distance >= 1; distance /= k.radix {
		wide := distance * k.radix
		switch {
		case place%wide == 0:
			for peer := place + distance; peer < min(place+wide, k.core); peer += distance {
				k.send(peer, peer, peer+distance)
			}
		case place%distance == 0:
			k.recv(place-place%wide, place, place+distance)
		}
	}
}

// gather exchanges blocks with peers at growing distances. A place that scattered the blocks of a group has them.
func (k *knomialBroadcast) gather(place int) {
	for distance := 1; distance < k.core; distance *= k.radix {
		wide := distance * k.radix
		group, own := place-place%wide, place-place%distance
		before := k.recvs
		for i := 1; i < k.radix; i++ {
			peer := group + (place-group+i*distance)%wide
			if peer < k.core && peer%wide != 0 {
				k.send(peer, own, own+distance)
			}
		}
		for i := 1; i < k.radix && place%wide != 0; i++ {
			peer := group + (place-group+i*distance)%wide
			if first := peer - peer%distance; peer < k.core {
				before = append(before, p2p.Recv{
					Off: k.at(first), Len: k.at(first+distance) - k.at(first), From: k.rank(peer),
				})
			}
		}
		k.recvs = before
	}
}

// uccDoubleTree is UCC's double binary tree. Each half of the buffer goes down its own tree, in one message per edge.
// The inner ranks of one tree are leaves of the other. If inOrder is set, a rank forwards the second half only after
// the first has arrived, as UCC's progress function does.
func uccDoubleTree(inOrder bool) func(p2p.Spec) (*p2p.Plan, error) {
	return func(s p2p.Spec) (*p2p.Plan, error) {
		half := (s.Bytes + 1) / 2
		first := halfTree{node: inOrderTree(s.Rank, s.Size), len: half}
		second := halfTree{node: mirrored(s.Rank, s.Size), off: half, len: s.Bytes - half}
		order := []halfTree{first, second}
		// Messages of one sender stay in order.
		apart := s.Rank != s.Root && first.sender(s.Root) != second.sender(s.Root)
		if !inOrder && apart && len(first.children) < len(second.children) {
			order = []halfTree{second, first} // the half to forward comes first
		}
		var sends []p2p.Send
		var recvs []p2p.Recv
		for _, t := range order {
			switch {
			case s.Rank != s.Root:
				recvs = append(recvs, p2p.Recv{Off: t.off, Len: t.len, From: int32(t.sender(s.Root))})
			case t.parent >= 0:
				t.children = append(t.children, t.top)
			}
			for _, c := range t.children {
				if c != s.Root {
					sends = append(sends, p2p.Send{Off: t.off, Len: t.len, To: int32(c), After: int32(len(recvs))})
				}
			}
		}
		return p2p.Schedule("ucc-double-tree", s, sends, recvs)
	}
}

// halfTree is the part of one rank in one of two trees.
type halfTree struct {
	node
	off, len int64
}

// sender returns the rank that a rank other than the root receives from.
func (t halfTree) sender(root int) int {
	if t.parent < 0 {
		return root
	}
	return t.parent
}

// node is a rank in a binary tree.
type node struct {
	top      int // rank at the top
	parent   int // -1 at the top
	children []int
}

// inOrderTree returns a rank of a binary tree whose in-order traversal is the order of ranks. Each left subtree is
// full, and all even ranks but the last are leaves.
func inOrderTree(rank, size int) node {
	first, end, parent := 0, size, -1
	top := func() int { return first + 1<<(bits.Len(uint(end-first))-1) - 1 }
	n := node{top: top()}
	for t := top(); t != rank; t = top() {
		parent = t
		if rank < t {
			end = t
		} else {
			first = t + 1
		}
	}
	n.parent = parent
	low, high := first, end
	if low < rank {
		first, end = low, rank
		n.children = append(n.children, top())
	}
	if rank+1 < high {
		first, end = rank+1, high
		n.children = append(n.children, top())
	}
	return n
}

// mirrored returns a rank of the second tree: the first with the ranks in reverse order, or shifted by one if there is
// an odd number of them.
func mirrored(rank, size int) node {
	there := func(r int) int { return size - 1 - r }
	back := there
	if size%2 == 1 {
		there = func(r int) int { return (r + size - 1) % size }
		back = func(r int) int { return (r + 1) % size }
	}
	n := inOrderTree(there(rank), size)
	n.top = back(n.top)
	if n.parent >= 0 {
		n.parent = back(n.parent)
	}
	for i, c := range n.children {
		n.children[i] = back(c)
	}
	return n
}
