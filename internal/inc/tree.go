package inc

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strings"
)

// A Tree is the tree of aggregators of a job. Ranks are world ranks. ParseTree makes it.
type Tree struct {
	Nodes []TreeNode // in the order of the text; parents may come after their children
	Top   int        // index of the node without a parent

	servers   []server // by rank
	positions []int    // by node: position among its parent's children; -1 at the top
	below     []int    // by node: number of ranks in its subtree
	depth     int
}

// A TreeNode is one aggregator.
type TreeNode struct {
	Addr     string  // HOST:PORT of its control connections
	Parent   int     // index in Tree.Nodes; -1 at the top
	Ranks    []int   // ranks that it serves, in increasing order
	Children []Child // all children, in the order of addition: its ranks, then aggregators in the order of Tree.Nodes
}

// A Child is a rank or an aggregator.
type Child struct {
	Rank int // -1: an aggregator
	Node int // -1: a rank
}

// server is the aggregator of a rank, and the rank's position among its children.
type server struct{ node, child int }

// Size returns the number of ranks.
func (t *Tree) Size() int { return len(t.servers) }

// Depth returns the number of aggregators on the longest path from a rank to the top.
func (t *Tree) Depth() int { return t.depth }

// String returns a text that ParseTree accepts.
func (t *Tree) String() string {
	var b strings.Builder
	for i := range t.Nodes {
		n := &t.Nodes[i]
		if i > 0 {
			b.WriteByte(';')
		}
		b.WriteString(n.Addr)
		for at := 0; at < len(n.Ranks); {
			end := at + 1
			for end < len(n.Ranks) && n.Ranks[end] == n.Ranks[end-1]+1 {
				end++
			}
			separator := byte(',')
			if at == 0 {
				separator = '='
			}
			b.WriteByte(separator)
			fmt.Fprintf(&b, "%d", n.Ranks[at])
			if end > at+1 {
				fmt.Fprintf(&b, "-%d", n.Ranks[end-1])
			}
			at = end
		}
		if n.Parent >= 0 {
			b.WriteByte('>')
			b.WriteString(t.Nodes[n.Parent].Addr)
		}
	}
	return b.String()
}

// Digest identifies the shape of the tree, and so the order of addition. Addresses do not count.
func (t *Tree) Digest() uint64 {
	h := fnv.New64a()
	put := func(v int) {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(v))
		h.Write(b[:])
	}
	var visit func(node int)
	visit = func(node int) {
		children := t.Nodes[node].Children
		put(len(children))
		for _, c := range children {
			put(c.Rank)
			if c.Node >= 0 {
				visit(c.Node)
			}
		}
	}
	visit(t.Top)
	return h.Sum64()
}

// Server returns the aggregator of a rank, and the rank's position among its children.
func (t *Tree) Server(rank int) (node, child int) { return t.servers[rank].node, t.servers[rank].child }

// Position returns the position of an aggregator among its parent's children, or -1 at the top.
func (t *Tree) Position(node int) int { return t.positions[node] }

// absent returns the child of an aggregator that does not contribute to the chunks of owner's block: the owner
// itself, or an aggregator with no other rank below it. It returns -1 if all children contribute.
func (t *Tree) absent(node, owner int) int {
	at := t.servers[owner]
	for at.node != node {
		if at.node == t.Top {
			return -1 // the owner is not below node
		}
		at = server{t.Nodes[at.node].Parent, t.Position(at.node)}
	}
	if c := t.Nodes[node].Children[at.child]; c.Node >= 0 && t.below[c.Node] > 1 {
		return -1
	}
	return at.child
}

// absents returns the result of absent for every owner.
func (t *Tree) absents(node int) []int32 {
	absent := make([]int32, t.Size())
	for owner := range absent {
		absent[owner] = -1
	}
	for i, c := range t.Nodes[node].Children {
		if c.Node < 0 {
			absent[c.Rank] = int32(i)
		} else if t.below[c.Node] == 1 {
			absent[t.onlyRank(c.Node)] = int32(i)
		}
	}
	return absent
}

// onlyRank returns the rank below an aggregator that has only one. No aggregator has none, so each on the way down has
// one child.
func (t *Tree) onlyRank(node int) int {
	for {
		c := t.Nodes[node].Children[0]
		if c.Node < 0 {
			return c.Rank
		}
		node = c.Node
	}
}

// Expects returns which children of an aggregator contribute to the chunks of owner's block: all but the owner
// itself, and an aggregator with no other rank below it.
func (t *Tree) Expects(node, owner int) (children []int) {
	absent := t.absent(node, owner)
	for i := range t.Nodes[node].Children {
		if i != absent {
			children = append(children, i)
		}
	}
	return children
}

// Combine adds the contributions of all ranks but the owner in the tree's order, with the tree's rounding, into
// dst. input returns a rank's contribution, which Combine does not change. add adds src to dst. It uses
// scratch, of Depth times len(dst) bytes. With the owner as the only rank, Combine does not change dst.
func (t *Tree) Combine(dst []byte, owner int, scratch []byte, input func(rank int) []byte, add func(dst, src []byte)) {
	if t.Size() > 1 {
		t.combine(t.Top, dst, owner, scratch, input, add)
	}
}

func (t *Tree) combine(
	node int, dst []byte, owner int, scratch []byte, input func(rank int) []byte, add func(dst, src []byte),
) {
	first, absent := true, t.absent(node, owner)
	for i, c := range t.Nodes[node].Children {
		switch {
		case i == absent:
			continue
		case first && c.Node < 0:
			copy(dst, input(c.Rank))
		case first:
			t.combine(c.Node, dst, owner, scratch, input, add)
		case c.Node < 0:
			add(dst, input(c.Rank))
		default:
			sum := scratch[:len(dst)]
			t.combine(c.Node, sum, owner, scratch[len(dst):], input, add)
			add(dst, sum)
		}
		first = false
	}
}
