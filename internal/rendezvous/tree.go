package rendezvous

import "math"

// A tree numbers the ranks like a heap: each rank has up to fan-out children, and rank 0 is the top. The
// parent of a rank does not depend on the number of ranks. A process that has another number than the rest
// therefore still meets a rank of the job and learns of the mismatch.
type tree int

const (
	// star makes rank 0 the parent of all.
	star tree = math.MaxInt
	// byEight keeps the bytes that a rank sends linear in the size of the job. Eight children cost one
	// more level than 64 would at some hundred ranks, and an eighth of the sending time.
	byEight tree = 8
)

func (t tree) parent(rank int) int { return (rank - 1) / int(t) }

// hasChildren reports whether a rank has children in a job of at least two ranks.
func (t tree) hasChildren(rank, size int) bool { return rank <= (size-2)/int(t) }

// within reports whether rank is top, or reaches rank 0 through top.
func (t tree) within(rank, top int) bool {
	for rank > top {
		rank = t.parent(rank)
	}
	return rank == top
}
