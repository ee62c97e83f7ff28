package datapath

import (
	"fmt"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/wire"
)

// A Sink takes the reports of a Datapath. Any goroutine may report; the Sink must not block.
type Sink interface {
	Report(Event)
}

// EventKind says what happened.
type EventKind uint8

// Events that control tells the node of, with the fields that they set.
const (
	ChunksPlaced       EventKind = iota // Chunks, Kernel: a receive worker's report
	PiecesPlaced                        // Op, Peer, Prefix, Left: progress of a point-to-point operation
	EarlyData                           // Peer, Piece, Buf: data for an operation that is not open; control releases Buf
	Sent                                // Op, N: chunks that were multicast, or puts that are done
	Ready                               // Op: its buffer is registered
	RegistrationFailed                  // Op, Err
	ReadDone                            // Op, Peer, Fetched: a read has ended, perhaps without chunks
	Digested                            // Op, Sum
	Quiesced                            // Op: nothing touches the buffers of a failed operation any more
	PeerLost                            // Peer, Err: the peer has left, or violated the protocol
	Summed                              // Op: sums of aggregators are in place
	Wanted                              // Op, N, Try: an aggregator misses a contribution to place N
	Fetched                             // Op, Made: an Operation.Fetch has ended

	// Events that only Accept sees.
	putDone        // Peer, Piece
	directReadDone // Peer, Piece.Op, Sum, N: 1 if the chunks are in place
	registered     // Piece.Op, Err
	claimed        // read: the receive worker has claimed its chunks
	readPlaced     // read: all of the answer is in place
	quiet          // Op: one goroutine no longer touches its buffers
)

// An Event is one report. Its kind says which fields count.
type Event struct {
	Kind         EventKind
	Kernel       bool // the kernel received the datagrams
	N            uint32
	Try          uint8
	Prefix, Left uint32 // receives that are complete from the first on, and receives that are not
	Peer         int
	Op           *Operation
	Sum          uint64 // of a digest; directReadDone: the read's id
	Err          error
	Chunks       *mcast.Report
	Piece        fabric.Piece
	off          int64
	Buf          *fabric.Buffer
	read         *read
	fetch        *fetch
}

// Made says which chunks Fetched has made, as in Operation.Fetch.
func (ev *Event) Made() (psn, n uint32) { return ev.fetch.psn, ev.fetch.n }

// Fetched says which chunks of a stream ReadDone has placed, and how many bytes they are.
func (ev *Event) Fetched() (stream int, chunks []wire.Range, bytes int64) {
	return ev.read.landing.place.Stream, ev.read.won, ev.read.size
}

// Accept does the datapath's share of an event, on control's goroutine. It may turn the event into the
// one that follows from it. It reports false if the event does not concern the node.
func (d *Datapath) Accept(ev *Event) bool {
	switch ev.Kind {
	case ChunksPlaced, PiecesPlaced, PeerLost:
		return true
	case EarlyData:
		// The operation may have been opened since.
		if op := d.transfers.find(ev.Piece.Op); op != nil {
			op.Receive(ev.Peer, ev.Piece, ev.off, ev.Buf)
			return false
		}
		return true
	case Sent:
		ev.Op.sending--
		ev.Op.freeCopy()
		return ev.Op.state == opOpen
	case Summed, Wanted, Fetched:
		return ev.Op.state == opOpen
	case claimed:
		return d.claimed(ev)
	case readPlaced:
		if ev.read.part != nil {
			d.partDone(ev.read)
			return false
		}
		return d.readDone(ev)
	case putDone, directReadDone, registered:
		if ev.Op = d.ops[ev.Piece.Op]; ev.Op == nil {
			return false
		}
	case Digested, quiet:
	default:
		panic(fmt.Sprintf("datapath: unexpected event %d", ev.Kind))
	}
	// A user of the operation's buffers is done.
	op := ev.Op
	if op.state == opQuiescing {
		return op.answered(ev)
	}
	op.users--
	switch ev.Kind {
	case putDone:
		op.pieces.sent(ev.Peer, ev.Piece.Nth)
		ev.Kind, ev.N = Sent, 1
	case directReadDone:
		return d.directReadDone(ev)
	case registered:
		op.registering = false
		if ev.Kind = Ready; ev.Err != nil {
			ev.Kind = RegistrationFailed
		}
	}
	return op.state == opOpen
}
