package fabric

import "github.com/allcast/allcast/internal/place"

// A Placer receives outside of this process: the kernel or a network card puts the chunks of a
// Lane where they belong and notes them in words that the process sees (package place), while the
// process does other things. Chunks that it does not know, or leaves, come to the Sink as ever.
type Placer interface {
	// Room is how many chunks may be on their way to us.
	Room() int
	// Area prepares for a receive buffer. It may take its time. nil: chunks cannot be placed
	// for it; they come to the Sink.
	Area(buf []byte) Area
	// Open lets the chunks of a lane be placed, before it returns. nil: as Area. Any
	// goroutine may call it.
	Open(a Area, l *Lane) Placed
	// Watch makes the poller call ready, and says why it cannot, when chunks were placed: all
	// of a lane, and every few.
	Watch(p Poller, ready func()) error
	// Lost is how many datagrams were lost on purpose, for tests.
	Lost() uint64
	// Wake makes the poller call ready. Any goroutine may do so.
	Wake()
	// Alloc returns memory that chunks are placed in directly; for other memory they are
	// copied once. It is the caller's until Free, also beyond Close.
	Alloc(n int) ([]byte, error)
	// Free reports whether the memory was Alloc's.
	Free(buf []byte) bool
	// Close ends all. Lanes were closed before, and the Poller.
	Close() error
}

// An Area is a receive buffer that a Placer knows.
type Area interface {
	// Stage is where its chunks are placed, at the same offsets, to be copied to the receive
	// buffer; nil: they are placed there at once.
	Stage() []byte
	// Release ends it. Its lanes are closed.
	Release()
}

// A Lane is an operation's subgroup.
type Lane struct {
	Sub    int
	Token  uint64
	Comm   uint32
	Imm    uint32 // the operation's part of the immediate
	Mask   uint32 // the chunk's part
	Chunk  int
	PSNs   uint32 // chunks, our own included
	Own    Run    // our own
	Blocks []Block
}

// A Block is what one rank sends to a subgroup: consecutive chunks, from Off on in the
// receive buffer, of which only the last may be shorter than the others.
type Block struct {
	Off  int64
	Run  Run
	Tail int
}

// A Run is consecutive chunks.
type Run struct{ PSN, N uint32 }

// Placed is a lane that is open. All but Counted belongs to one worker.
type Placed interface {
	// Words is the state of the lane's chunks. Our own are in place.
	Words() []place.Word
	// Counted is how many chunks were placed or claimed, or more: whoever counted one has noted it before.
	// Any goroutine may call it.
	Counted() uint64
	// Count counts chunks that the worker has claimed: nobody else places them. It reports whether all
	// chunks that others send are counted now; nobody wakes the process then.
	Count(n uint32) bool
	// Ignored is how many datagrams were of no use since the last call.
	Ignored() (duplicates, late, foreign uint64)
	// Close ends it: nothing is placed any more when it returns.
	Close()
}

// A Watcher is a Poller that can look at any descriptor.
type Watcher interface {
	// Watch makes the poller call ready when the descriptor can be read, and after wake. The
	// descriptor stays open until the poller is closed.
	Watch(fd int, ready func()) (wake func(), err error)
}
