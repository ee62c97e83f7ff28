package step

import "fmt"

// Stats counts the events of one collective. The node counts Duplicates and Foreign itself, because
// a collective does not see those datagrams.
type Stats struct {
	Repaired   uint64 // chunks placed by reads
	Late       uint64 // chunks that arrived by datagram after the rank had asked for them
	Duplicates uint64 // datagrams for chunks that were in place
	Foreign    uint64 // datagrams that fit no chunk, and unexpected point-to-point pieces
}

// Times are the moments at which a collective changed its phase; 0 means not yet.
type Times struct {
	Start, Barrier, Fetch, Have, Done Time
	Cutoff                            Time // span from the barrier to the first cutoff
}

// A Namer names a rank of a communicator in messages for people. A nil Namer returns "rank N".
type Namer func(rank int) string

// Name returns the name of a rank.
func (n Namer) Name(rank int) string {
	if n == nil {
		return fmt.Sprintf("rank %d", rank)
	}
	return n(rank)
}
