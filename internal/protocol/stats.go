package protocol

import "fmt"

// Stats counts what an Op did.
type Stats struct {
	Repaired uint64 // chunks placed by reads
	Late     uint64 // chunks that came by datagram after they had been asked for
	// Datagrams that placed nothing, and among the foreign ones pieces of point-to-point operations that
	// nobody expected. The node counts both: an Op does not hear of them.
	Duplicates, Foreign uint64
}

// Times are the moments at which an Op changed phase, 0 for those not reached, and how long after
// the barrier it would have taken everything for lost.
type Times struct {
	Start, Barrier, Fetch, Have, Done Time
	Cutoff                            Time
}

// A Namer says what people call a rank of a communicator; nil: "rank 3".
type Namer func(rank int) string

// Name is what people call a rank.
func (n Namer) Name(rank int) string {
	if n == nil {
		return fmt.Sprintf("rank %d", rank)
	}
	return n(rank)
}
