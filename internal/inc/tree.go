package inc

// A Tree is the tree of aggregators of a job. Ranks are world ranks.
type Tree struct {
	Nodes []TreeNode // in the order of the text; parents may come after their children
	Top   int        // index of the node without a parent
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

// ParseTree parses the value of ALLCAST_AGGREGATORS for a job of size ranks. Aggregators are separated by
// semicolons, and each has the form
//
//	HOST:PORT[=RANKS][>PARENT]
//
// RANKS are the ranks that it serves, such as 0-3,8. PARENT is the HOST:PORT of its parent; the aggregator at
// the top has none. Spaces around the parts are ignored. Every rank has exactly one aggregator.
func ParseTree(text string, size int) (*Tree, error) { panic("TODO") }

// String returns a text that ParseTree accepts.
func (t *Tree) String() string { panic("TODO") }

// Digest identifies the shape of the tree, and so the order of addition.
func (t *Tree) Digest() uint64 { panic("TODO") }

// Server returns the aggregator of a rank, and the rank's position among its children.
func (t *Tree) Server(rank int) (node, child int) { panic("TODO") }

// Position returns the position of an aggregator among its parent's children.
func (t *Tree) Position(node int) int { panic("TODO") }

// Expects returns which children of an aggregator contribute to the chunks of owner's block: all but the owner
// itself, and an aggregator with no other rank below it.
func (t *Tree) Expects(node, owner int) (children []int) { panic("TODO") }

// Combine adds the contributions of all ranks but the owner in the tree's order, with the tree's rounding, into
// dst. input returns a rank's contribution, which Combine does not change. add adds src to dst. It uses
// scratch, of Depth times len(dst) bytes.
func (t *Tree) Combine(dst []byte, owner int, scratch []byte, input func(rank int) []byte, add func(dst, src []byte)) {
	panic("TODO")
}
