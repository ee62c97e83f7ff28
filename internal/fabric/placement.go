package fabric

import "github.com/allcast/allcast/internal/place"

// A Placer receives outside of this process. The kernel or a network card writes the chunks of a
// placement to where they belong, and records them in words that the process shares (package place).
// Chunks that the Placer does not know, or passes on, still reach the Sink.
type Placer interface {
	// Room is the number of chunks that may be in flight to this rank.
	Room() int
	// Area prepares a receive buffer, which may take long. nil: the Placer cannot place chunks for
	// this buffer, and they go to the Sink.
	Area(buf []byte) Area
	// Watch makes the poller call ready when chunks were placed: all of a placement, and every few.
	Watch(ready func()) error
	// Wake makes the poller call ready. Any goroutine may call it.
	Wake()
	// Lost counts the datagrams that an injected fault dropped.
	Lost() uint64
	// Close follows the close of all placements and of the poller.
	Close() error
}

// An Area is a receive buffer that a Placer has prepared.
type Area interface {
	// Open lets the Placer place the chunks of a placement from before it returns. nil: the Placer
	// cannot, and the chunks go to the Sink. Any goroutine may call it.
	Open(p *PlacementSpec) OpenPlacement
	// Stage is where the Placer writes the chunks, at the same offsets as in the receive buffer, for
	// the process to copy. nil: the Placer writes to the receive buffer itself.
	Stage() []byte
	// Release follows the close of the area's placements.
	Release()
}

// A PlacementSpec says where the chunks of one stream of an operation belong.
type PlacementSpec struct {
	Stream int
	Token  uint64
	Comm   uint32
	Imm    uint32 // bits of the immediate that identify the operation
	Mask   uint32 // bits of the immediate that hold the PSN
	Chunk  int
	PSNs   uint32 // number of chunks, this rank's own included
	Own    Run    // this rank's own chunks
	Blocks []Block
}

// A Block is the chunks that one rank sends to a stream. They are consecutive, begin at Off in the
// receive buffer, and only the last one, of Tail bytes, may be shorter than the others.
type Block struct {
	Off  int64
	Run  Run
	Tail int
}

// A Run is consecutive chunks.
type Run struct{ PSN, N uint32 }

// An OpenPlacement is a placement that a Placer works on. All methods but Counted belong to one
// worker.
type OpenPlacement interface {
	// Words is the record of the chunks. This rank's own chunks are in place.
	Words() []place.Word
	// Counted is at least the number of chunks that were placed or claimed. A chunk is recorded before
	// it is counted. Any goroutine may call it.
	Counted() uint64
	// Count counts chunks that the worker has claimed, which the Placer does not place. It reports
	// whether all chunks of other ranks are counted now; the Placer then does not wake the process.
	Count(n uint32) bool
	// Ignored counts the datagrams without use since the last call.
	Ignored() (duplicates, late, foreign uint64)
	// Close stops the placing before it returns.
	Close()
}
