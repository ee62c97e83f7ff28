package wire

import (
	"fmt"
	"slices"
	"strings"
)

// CallKind is the collective that a call asks for.
type CallKind uint8

// Collectives. Multicast carries the first two; package p2p has plans for all of them. The numbers are part
// of the wire format.
const (
	Broadcast CallKind = 1 + iota
	Allgather
	ReduceScatter
	Allreduce
	Barrier
	Gather
	Gatherv
	Scatter
	Scatterv
	Reduce
	Alltoall
	Alltoallv
	Send // the last two are not collectives
	Recv
	endOfKinds
)

// callKinds holds the facts about each collective.
var callKinds = [endOfKinds]struct {
	name    string
	rooted  bool // one rank is the root
	reduces bool // elements are combined
	private bool // a rank knows only the sizes that concern itself
	blocks  bool // the data consists of blocks, one per rank
}{
	Broadcast:     {name: "broadcast", rooted: true},
	Allgather:     {name: "allgather", blocks: true},
	ReduceScatter: {name: "reduce-scatter", reduces: true, blocks: true},
	Allreduce:     {name: "allreduce", reduces: true},
	Barrier:       {name: "barrier"},
	Gather:        {name: "gather", rooted: true, blocks: true},
	Gatherv:       {name: "gatherv", rooted: true, private: true, blocks: true},
	Scatter:       {name: "scatter", rooted: true, blocks: true},
	Scatterv:      {name: "scatterv", rooted: true, private: true, blocks: true},
	Reduce:        {name: "reduce", rooted: true, reduces: true},
	Alltoall:      {name: "alltoall", blocks: true},
	Alltoallv:     {name: "alltoallv", private: true, blocks: true},
	Send:          {name: "send"},
	Recv:          {name: "recv"},
}

// CallKinds lists all collectives.
func CallKinds() (all []CallKind) {
	for k := Broadcast; k < Send; k++ {
		all = append(all, k)
	}
	return all
}

func (k CallKind) known() bool { return k > 0 && k < endOfKinds }

// Collective reports whether all ranks of a communicator take part.
func (k CallKind) Collective() bool { return k.known() && k < Send }

// Rooted reports whether the collective has a root.
func (k CallKind) Rooted() bool { return k.known() && callKinds[k].rooted }

// Reduces reports whether the collective combines elements.
func (k CallKind) Reduces() bool { return k.known() && callKinds[k].reduces }

// Blocks reports whether the data consists of blocks, one per rank.
func (k CallKind) Blocks() bool { return k.known() && callKinds[k].blocks }

// Private reports whether a rank knows only the sizes that concern itself, so that two ranks may disagree
// about the bytes between them.
func (k CallKind) Private() bool { return k.known() && callKinds[k].private }

func (k CallKind) String() string {
	if k.known() {
		return callKinds[k].name
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Algorithm is the number of an algorithm's name; 0 means unknown. Ranks greet each other for every
// call, and a number spares them copying a name out of every greeting.
type Algorithm uint8

// Mcast is the algorithm of the paper.
const Mcast Algorithm = 1

// algorithmNames is part of the wire format: new names are appended, and no name ever moves.
var algorithmNames = []string{
	"", "mcast", "inc",
	"binomial", "knomial", "binary", "chain", "scatter-allgather",
	"ring", "linear", "recursive-doubling", "bruck", "recursive-halving", "dissemination",
	"pairwise", "pat",
}

// AlgorithmOf returns the number of a name, or 0 for an unknown name.
func AlgorithmOf(name string) Algorithm { return Algorithm(max(0, slices.Index(algorithmNames, name))) }

func (a Algorithm) String() string {
	switch {
	case a == 0:
		return "unknown"
	case int(a) < len(algorithmNames):
		return algorithmNames[a]
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

// A Call describes a call well enough to show people what a peer called.
type Call struct {
	Kind  CallKind
	Algo  Algorithm
	Type  uint16 // element type and operator of a reduction, in the driver's encoding
	Root  uint32
	Bytes uint64 // total over all ranks; between two ranks if the sizes are private
}

// String describes the call without its element type.
func (c Call) String() string { return c.Describe(nil) }

// Describe describes the call. If typeName is not nil, it names the element type of a reduction.
func (c Call) Describe(typeName func(uint16) string) string {
	if c.Kind == 0 {
		return "something else"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v", c.Kind)
	switch {
	case c.Kind.Private():
		fmt.Fprintf(&b, " with %d bytes between the two ranks", c.Bytes)
	case c.Kind != Barrier:
		fmt.Fprintf(&b, " of %d bytes", c.Bytes)
	}
	switch {
	case c.Kind == Broadcast || c.Kind == Scatter || c.Kind == Scatterv:
		fmt.Fprintf(&b, " from root %d", c.Root)
	case c.Kind.Rooted():
		fmt.Fprintf(&b, " to root %d", c.Root)
	}
	if typeName != nil && c.Kind.Reduces() {
		fmt.Fprintf(&b, ", %s", typeName(c.Type))
	}
	if c.Algo != 0 {
		fmt.Fprintf(&b, ", algorithm %v", c.Algo)
	}
	return b.String()
}

// A CallPair holds two calls that should have been equal.
type CallPair struct {
	Ranks [2]uint32 // world ranks of the callers
	Calls [2]Call
}
