package wire

import (
	"fmt"
	"slices"
	"strings"
)

// CallKind is the collective that a call asks for.
type CallKind uint8

// Collectives. Multicast carries the first two; package p2p has plans for all of them.
const (
	Broadcast CallKind = 1 + iota
	Allgather
	ReduceScatter
	Allreduce
	Barrier
)

var callKindNames = [...]string{
	Broadcast: "broadcast", Allgather: "allgather", ReduceScatter: "reduce-scatter", Allreduce: "allreduce",
	Barrier: "barrier",
}

func (k CallKind) String() string {
	if k > 0 && int(k) < len(callKindNames) {
		return callKindNames[k]
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
	Bytes uint64 // total over all ranks
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
	if c.Kind != Barrier {
		fmt.Fprintf(&b, " of %d bytes", c.Bytes)
	}
	if c.Kind == Broadcast {
		fmt.Fprintf(&b, " from root %d", c.Root)
	}
	if typeName != nil && (c.Kind == ReduceScatter || c.Kind == Allreduce) {
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
