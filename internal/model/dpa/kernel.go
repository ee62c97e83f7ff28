package dpa

import "slices"

// Transport is the transport of the chunks. It also selects the kernel.
type Transport string

// UD stages every datagram and copies it; UC writes chunks of any length in place.
const (
	UD Transport = "ud"
	UC Transport = "uc"
)

type stepKind uint8

const (
	access stepKind = iota
	poll            // poll of the completion queue, repeated until there is a completion
	repost          // repost of the receive, which makes room in the queue
	copied          // wait for the DMA that empties the staging slot
)

// A step is a number of instructions and the access that the thread then waits for.
type step struct {
	kind    stepKind
	instr   int64
	latency int64
}

// Appendix C is the UC kernel. Each entry is one access to memory beyond the thread's
// own cache; the UD kernel has the copy in addition (Section V).
var (
	ucAccess = []stepKind{
		poll,
		access, // completion queue's doorbell record
		repost, // receive queue's doorbell record
		access, // load of the bitmap's word
		access, // and its store
	}
	udAccess = []stepKind{
		poll,
		access, // completion queue's doorbell record
		access, // load of the bitmap's word
		access, // and its store
		access, // work request of the copy
		access, // send queue's doorbell record
		access, // the doorbell
		access, // completion of the copy
		repost, // receive queue's doorbell record: the slot is free
	}
)

// copyAfter is where in the UD kernel the copy runs: between doorbell and completion.
const copyAfter = 7

func kernel(t Transport) []step {
	if t == UC {
		return trace(ucAccess, ucInstructions, ucCycles)
	}
	return slices.Insert(trace(udAccess, udInstructions, udCycles), copyAfter, step{kind: copied})
}

// edge is the code that runs once before the loop and once after it.
func edge() []step {
	kinds := make([]stepKind, edgeAccesses)
	return trace(kinds, edgeInstructions, edgeInstructions+edgeAccesses*edgeLatency)
}

// trace spreads the instructions, and the remaining cycles of Table I, over the accesses so
// that both sums are exact.
func trace(kinds []stepKind, instructions, cycles int64) []step {
	steps := make([]step, len(kinds))
	n := int64(len(kinds))
	for i, k := range kinds {
		steps[i] = step{kind: k, instr: part(instructions, n, int64(i)), latency: part(cycles-instructions, n, int64(i))}
	}
	return steps
}

// part is the i-th of n parts of a whole. The parts differ by at most one.
func part(whole, n, i int64) int64 { return whole*(i+1)/n - whole*i/n }
