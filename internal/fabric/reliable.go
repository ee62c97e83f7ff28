package fabric

import "time"

// Reliable is the reliable side. Peers are world ranks. Connections are made when they are first
// needed. Only Flush and Close block.
type Reliable struct {
	Messages
	Memory
	Lifecycle

	// Exactly one of the two is set.
	Reader Reader
	Direct DirectReader

	Allocator Allocator // nil: any memory suits the network
	Poller    Poller    // polls the connections; nil: goroutines of the network do
}

// Messages are what a rank sends to a peer. The peer receives all of it in order.
type Messages interface {
	// Send delivers a message. It copies msg.
	Send(to int, msg []byte)
	// SendMore is Send for a message that another Send or Put to this peer follows at once. The network
	// may delay the message to send both together.
	SendMore(to int, msg []byte)
	// Put delivers data straight from its memory; len(data) == p.Len. Handler.PutDone says that the
	// memory is free again. It is called exactly once, perhaps before Put returns, also if the peer is
	// lost. Only Close may skip it.
	Put(to int, p Piece, data []byte)
	// Cancel makes the puts and the direct reads of an operation end soon. A put that has not begun
	// never begins. Handler.PutDone is still called for each put.
	Cancel(op OpKey)
}

// Memory lets peers read a rank's buffers.
type Memory interface {
	// Register lets peers read a buffer until Unregister returns. It reports whether they can now. If
	// not, Handler.Registered says later that they can, or why they cannot.
	Register(op OpKey, buf []byte) (ready bool)
	Unregister(op OpKey)
}

// A Reader reads the registered buffers of peers with their help.
type Reader interface {
	// Read asks for parts of the peer's registered buffer; Handler.ReadData gets the answer. A read
	// that the peer refuses has no answer. It copies r.Spans. At most MaxReads reads of an operation
	// may be under way with a peer.
	Read(to int, r ReadRequest)
}

// A DirectReader reads the registered buffers of peers without their help, straight to where the
// bytes belong.
type DirectReader interface {
	// ReadInto reads parts of the peer's registered buffer to the same offsets of buf, which is the
	// buffer that this rank registered for the same operation. Handler.ReadIntoDone is called exactly
	// once; until then, those parts of buf may be written. It copies r.Spans.
	ReadInto(to int, r ReadRequest, buf []byte)
}

// Lifecycle ends connections and counts their traffic.
type Lifecycle interface {
	// Drop ends the connections of a peer. Queued messages are sent if the peer takes them soon. The
	// peer is not reported as lost.
	Drop(to int)
	// Flush blocks until all messages have left this process, or until the limit. The process may end
	// then, and they still arrive.
	Flush(limit time.Duration)
	Stats() ReliableStats
	// Close sends what is queued, says goodbye to all peers, and waits, for a bounded time, until
	// they have received it. Afterwards the network does not call the Handler.
	Close() error
}

// A Handler receives the events of the reliable side. Goroutines of the network call its methods,
// for one peer in order. The methods must not block for long.
type Handler interface {
	// Message is a message of a peer. It is valid until Message returns.
	Message(from int, msg []byte)
	// Data is a part of a piece: the bytes from off on. The parts of a piece come in order; an empty
	// piece has one empty part. The handler releases b.
	Data(from int, p Piece, off int64, b *Buffer)
	// PutDone ends a Put. Puts end in any order, perhaps from within Put.
	PutDone(to int, p Piece)
	// ReadData is a part of the answer to a Read: the bytes from off on, in order. The handler
	// releases b.
	ReadData(from int, id ReadID, off int64, b *Buffer)
	// ReadIntoDone ends a ReadInto: the network no longer touches the buffer, which holds the
	// requested bytes if ok. A read that the peer refuses is not ok.
	ReadIntoDone(from int, id ReadID, ok bool)
	// Registered ends a Register that was not ready. After an error, nothing can be read or sent for
	// the operation.
	Registered(op OpKey, err error)
	// Lost says that the connection to a peer failed, cannot be made, or has ended with the peer's
	// goodbye (ErrGoodbye). It is called at most once per peer, after all that the peer has sent. If the
	// peer is this rank itself, it cannot connect to others because of a limit of its own (oslimit.Error).
	Lost(peer int, err error)
}

// An OpKey identifies an operation of a communicator.
type OpKey struct {
	Comm uint32
	Seq  uint64
}

// A Piece identifies what a Put carries: the Nth range, of Len bytes, that the sender sends to this
// peer in operation Op.
type Piece struct {
	Op  OpKey
	Nth uint32
	Len int64
}

// A Span is a part of a buffer.
type Span struct{ Off, Len int64 }

// A ReadID identifies a read. No two reads of an operation have the same ID.
type ReadID struct {
	Op OpKey
	ID uint64
}

// A ReadRequest asks for parts of a peer's registered buffer, at most MaxSpans of them. The answer
// is their bytes in this order.
type ReadRequest struct {
	ReadID
	Spans []Span
}

const (
	// MaxSpans is the largest number of parts of one read.
	MaxSpans = 512
	// MaxReads is the largest number of reads of one operation that a rank may have under way with one
	// peer. The network closes the connection of a peer that exceeds this limit, which bounds the
	// memory of its reads.
	MaxReads = 16
)

// Len is the size of the answer.
func (r *ReadRequest) Len() (n int64) {
	for _, s := range r.Spans {
		n += s.Len
	}
	return n
}

// ReliableStats are the counters of the reliable side.
type ReliableStats struct {
	Peers         map[int]PeerStats // peers with traffic
	DirectReads   uint64            // requests to read a peer's memory (RDMA READ)
	RejectedConns uint64            // connections that failed to authenticate as a rank
}

// PeerStats count the traffic with one peer, headers included.
type PeerStats struct {
	Sent, Received uint64 // bytes
}
