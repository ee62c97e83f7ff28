// Package bench measures and verifies collectives on a communicator.
package bench

import (
	"slices"
	"strings"

	"github.com/allcast/allcast"
)

// Job says how to measure an operation, whatever the algorithm and size.
type Job struct {
	Op            string // name of one of the Operations
	Iters, Warmup int    // iterations per size, measured and before that; 0 Iters: as in OSU's method
	OSU           bool   // OSU's method, see osu.go
	Check         bool   // verify every iteration
	Root          int
	Buffers       int // number of buffers of an operation on several; 0 for 1
	Subsets       int // number of disjoint sets of ranks that run the operation at once; 0 for 1
	Chains        int
	ByRack        bool // one chain per rack
	Subgroups     int  // 0: the default of the library
	Chunk         int
	InPlace       bool
	DType         allcast.DataType
	Reduce        allcast.ReduceOp
	Overlap       bool // also measure the overlap with computing
	Raw           bool // collect the times of all ranks for Bench.Raw
}

// operation returns the operation of the job.
func (j *Job) operation() *Operation { return Find(j.Op) }

// Reduces reports whether the operation reduces elements.
func (j *Job) Reduces() bool { return j.operation().reduces }

// subsets returns the number of sets that run the operation at once.
func (j *Job) subsets() int { return max(1, j.Subsets) }

// algorithmsOf splits an algorithm into those of the halves.
func algorithmsOf(algo string, halves int) []string {
	if algo == "auto" {
		return slices.Repeat([]string{algo}, halves)
	}
	return strings.Split(algo, "+")
}

// Memory estimates the memory that all ranks need for buffers, in bytes.
func (j *Job) Memory(ranks int, n int64) (bytes float64) {
	const sample = 1 << 10 // buffers grow with the size, which may be too large to add up
	p := ranks / j.subsets()
	for _, op := range j.operation().halves() {
		for i, times := range []int{1, p - 1} { // the root, and a rank for all others
			l := op.plan(j.shape(op, (j.Root+i)%p, p, sample))
			each := size(l.in) + size(l.out)
			if op.Collective == "reduce-scatter" {
				each += size(l.in) // the library's copy
			}
			bytes += float64(times) * float64(each)
		}
	}
	return bytes * float64(j.subsets()) * float64(n) / sample
}
