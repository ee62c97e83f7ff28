// Package bench measures and verifies collectives on a communicator.
package bench

import (
	"slices"
	"strings"

	"github.com/allcast/allcast"
)

// Pair is both collectives at once. The name of a pair and of its algorithms joins those of its halves with a plus.
const Pair = "allgather+reduce-scatter"

// Job says how to measure an operation, whatever the algorithm and size.
type Job struct {
	Op            string
	Iters, Warmup int  // iterations per size, measured and before that; 0 Iters: as in OSU's method
	OSU           bool // OSU's method, see osu.go
	Check         bool // verify every iteration
	Root          int
	Chains        int
	ByRack        bool // one chain per rack
	Subgroups     int
	Chunk         int
	InPlace       bool
	DType         allcast.DataType
	Reduce        allcast.ReduceOp
	Overlap       bool // also measure the overlap with computing
	Raw           bool // collect the times of all ranks for Bench.Raw
}

// Reduces reports whether the operation reduces elements.
func (j *Job) Reduces() bool {
	return j.Op == "reduce-scatter" || j.Op == "allreduce" || j.Op == Pair
}

// halves returns the operations that run at once, and their algorithms.
func halves(op, algo string) (ops, algos []string) {
	ops = strings.Split(op, "+")
	if algo == "auto" {
		return ops, slices.Repeat([]string{algo}, len(ops))
	}
	return ops, strings.Split(algo, "+")
}
