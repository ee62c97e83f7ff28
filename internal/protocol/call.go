package protocol

import (
	"fmt"
	"slices"
	"strings"
)

// A CallInfo is enough of a call to tell people what a peer asked for.
type CallInfo struct {
	Kind  Kind
	Algo  Algo
	Type  uint16 // what a reduction's elements and operator are, in the driver's numbers
	Root  uint32
	Bytes uint64 // summed over all ranks
}

// Algo is the number of an algorithm's name: a greeting is sent for every call, and
// a name in it would have to be copied out of every one. 0: unknown.
type Algo uint8

// The numbers are the wire format: names are only ever added, at the end.
var algoNames = []string{
	"", "mcast", "inc",
	"binomial", "knomial", "binary", "chain", "scatter-allgather",
	"ring", "linear", "recursive-doubling", "bruck", "recursive-halving", "dissemination",
}

// mcast is the algorithm of the paper.
const mcast Algo = 1

// AlgoOf is the number of a name, 0 if it has none.
func AlgoOf(name string) Algo { return Algo(max(0, slices.Index(algoNames, name))) }

func (a Algo) String() string {
	switch {
	case a == 0:
		return "unknown"
	case int(a) < len(algoNames):
		return algoNames[a]
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

// String is the call as people would write it down.
func (c CallInfo) String() string { return c.Describe(nil) }

// Describe is String with the element type in words.
func (c CallInfo) Describe(typed func(uint16) string) string {
	if c.Kind == 0 {
		return "something else"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v", c.Kind)
	if c.Kind != BarrierCall {
		fmt.Fprintf(&b, " of %d bytes", c.Bytes)
	}
	if c.Kind == Broadcast {
		fmt.Fprintf(&b, " from root %d", c.Root)
	}
	if typed != nil && (c.Kind == ReduceScatter || c.Kind == Allreduce) {
		fmt.Fprintf(&b, ", %s", typed(c.Type))
	}
	if c.Algo != 0 {
		fmt.Fprintf(&b, ", algorithm %v", c.Algo)
	}
	return b.String()
}

// A CallPair is two calls that should have been the same.
type CallPair struct {
	Ranks [2]uint32 // of the world, who made them
	Calls [2]CallInfo
}
