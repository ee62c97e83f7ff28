// Package fabric is what a real network must offer: unreliable multicast of
// datagrams that carry a 32-bit immediate (UD), and reliable, ordered traffic with
// single peers (RC) including one-sided reads of a registered buffer. Package
// engine runs nodes over it; fabric/ip offers it on UDP and TCP.
package fabric

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"
)

// Header is in front of every datagram.
type Header struct {
	Token uint64 // of the operation: who does not know the job's key cannot guess it
	Comm  uint32
	Imm   uint32 // slot and PSN (protocol.Layout)
	Sum   uint32 // checksum of the rest and the payload (Checksum), on networks that carry it (Caps.Header)
}

// HeaderSize is the size of an encoded Header without its Sum, SumSize that of the Sum.
const (
	HeaderSize = 16
	SumSize    = 4
)

// Put encodes h to b, little endian, but for its Sum.
func (h Header) Put(b []byte) {
	_ = b[HeaderSize-1]
	binary.LittleEndian.PutUint64(b, h.Token)
	binary.LittleEndian.PutUint32(b[8:], h.Comm)
	binary.LittleEndian.PutUint32(b[12:], h.Imm)
}

// ParseHeader decodes what Put encoded.
func ParseHeader(b []byte) Header {
	_ = b[HeaderSize-1]
	return Header{
		Token: binary.LittleEndian.Uint64(b),
		Comm:  binary.LittleEndian.Uint32(b[8:]),
		Imm:   binary.LittleEndian.Uint32(b[12:]),
	}
}

// PutSum encodes h to b with its Sum.
func (h Header) PutSum(b []byte) {
	h.Put(b)
	binary.LittleEndian.PutUint32(b[HeaderSize:], h.Sum)
}

// ParseSum decodes what PutSum encoded.
func ParseSum(b []byte) Header {
	h := ParseHeader(b)
	h.Sum = binary.LittleEndian.Uint32(b[HeaderSize:])
	return h
}

// Checksum is what Sum should be: CRC32C over the encoded header and the payload.
func (h Header) Checksum(payload []byte) uint32 {
	var b [HeaderSize]byte
	h.Put(b[:])
	// By hand, because what is given to crc32 would be allocated.
	crc := ^uint32(0)
	for _, v := range b {
		crc = castagnoli[byte(crc)^v] ^ crc>>8
	}
	return crc32.Update(^crc, castagnoli, payload)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Caps is what the multicast side of a fabric can do on this machine.
type Caps struct {
	Chunk    int // largest payload of one datagram, without Header
	Batch    int // datagrams that one Send takes at most: a super-packet; at least 1
	Room     int // datagrams of Chunk bytes that a receive queue holds, by what the kernel charges
	Overhead int // bytes that the network adds to a payload on the wire, Header included
	Header   int // bytes of an encoded Header: HeaderSize, and SumSize more if it carries Sum
}

// Multicast is the unreliable side: one group a subgroup.
type Multicast interface {
	Caps() Caps
	Subgroups() int
	Sender(sub int) Sender     // for one goroutine at a time
	Receiver(sub int) Receiver // likewise
	Close() error              // makes all Receive calls return ErrClosed
}

// A Batch is datagrams to send, in order. All payloads but the last have the
// same length, and the last is no longer.
type Batch struct {
	Headers  []Header
	Payloads [][]byte
}

// A Sender multicasts. One goroutine at a time uses it.
type Sender interface {
	// Send hands datagrams of a batch (at most Caps.Batch) to the network, from the first on, and
	// returns how many the network took. It never blocks: if the network has no room for all of
	// them, the error is ErrBusy. With any other error, the rest of the batch cannot be sent. The
	// datagrams do not reach this process itself. The network may read the payloads' memory until
	// Completed counts them.
	Send(b *Batch) (n int, err error)
	// Completed is how many datagrams, of all that Send took since the Sender was made, no longer
	// need their payloads' memory. Datagrams complete in order; after Close, all have.
	Completed() uint64
	// Await blocks until Send may have room again or Completed may have grown, for at most d.
	Await(d time.Duration)
}

// SendAll sends a whole batch, and blocks until its memory is free again. After about patience it
// gives up with ErrBusy: the network had no room, or has not completed what it took. With any error
// the network may still read the payloads' memory. The Sender must have nothing else in flight.
func SendAll(s Sender, b *Batch, patience time.Duration) error {
	const slice = 20 * time.Millisecond
	want := s.Completed()
	for waited := time.Duration(0); ; {
		n, err := s.Send(b)
		want += uint64(n)
		if n < len(b.Headers) {
			b = &Batch{Headers: b.Headers[n:], Payloads: b.Payloads[n:]}
		} else {
			b = &nothing
		}
		done := s.Completed()
		switch {
		case err != nil && !errors.Is(err, ErrBusy):
			return err
		case err == nil && done >= want:
			return nil
		case err != nil && waited > patience:
			return err
		case waited > patience:
			return fmt.Errorf("%w: %d datagrams that it took have not completed after %v", ErrBusy, want-done, waited)
		}
		start := time.Now()
		s.Await(slice)
		waited += time.Since(start)
	}
}

var nothing Batch

// A Receiver takes datagrams from one subgroup's queue.
type Receiver interface {
	// Receive waits until there are datagrams, hands all that are there to the sink,
	// calls Sink.Idle, and returns. It also returns, after Sink.Idle, when Wake was
	// called since the last Receive returned. It allocates nothing.
	Receive(s Sink) error
	// Wake makes a Receive that waits return, or else the next one. Any goroutine
	// may call it.
	Wake()
	// Pending reports whether datagrams wait in the queue. Any goroutine may call it.
	Pending() bool
	Stats() ReceiverStats
}

// ReceiverStats counts what a Receiver saw.
type ReceiverStats struct {
	Datagrams uint64 // received
	Dropped   uint64 // by a full queue, as far as the kernel tells, or by an injected fault
	Malformed uint64 // too short to be ours
	Calls     uint64 // system calls that returned datagrams
}

// A Sink is where a Receiver's datagrams go: the receive worker of the subgroup.
type Sink interface {
	// Expect fills slots with the memory where the payloads of the next datagrams most
	// likely belong, in order, and returns how many. The Receiver may write to them
	// until it calls Arrived or Chunk; what they held does not matter.
	Expect(slots [][]byte) int
	// Arrived says that datagrams with these headers have filled the first slots of
	// the last Expect, each exactly. The sink answers how many of them, from the
	// first on, are where they belong. The Receiver then moves the payloads of
	// the others out of the slots and hands them to Chunk.
	Arrived(h []Header) int
	// Chunk takes one datagram, whose payload is not in a slot. It is valid until
	// Chunk returns.
	Chunk(h Header, payload []byte)
	// Idle says that the queue is empty for now.
	Idle()
}

// An OpKey names an operation of a communicator.
type OpKey struct {
	Comm uint32
	Seq  uint64
}

// A Piece is what a Put carries: the Nth range that the sender sends to this peer
// in operation Op, Len bytes long.
type Piece struct {
	Op  OpKey
	Nth uint32
	Len int64
}

// A Span is a part of a buffer.
type Span struct{ Off, Len int64 }

// A ReadID names a read. No two reads of an operation have the same ID.
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
	// MaxSpans is how many parts one read covers at most.
	MaxSpans = 512
	// MaxReads is how many reads of one operation a rank has under way with one peer at most. The
	// fabric closes the connection of a peer that exceeds this limit, which bounds the memory of its
	// reads.
	MaxReads = 16
)

// Len is the size of the answer.
func (r *ReadRequest) Len() (n int64) {
	for _, s := range r.Spans {
		n += s.Len
	}
	return n
}

// Reliable is the reliable side. Peers are world ranks. Connections are made
// when first needed. Nothing here blocks but Close.
type Reliable interface {
	// Send delivers a message, after all that was sent to this peer before. It copies
	// msg.
	Send(to int, msg []byte)
	// SendMore is Send when another Send or Put to this peer follows at once: it may wait
	// for that one, to go with it.
	SendMore(to int, msg []byte)
	// Put delivers data, straight from its memory; Handler.PutDone says that it is
	// free again, before Put returns or later, also when the peer is lost. len(data) == p.Len.
	Put(to int, p Piece, data []byte)
	// Read asks for parts of the peer's registered buffer; the answer comes to
	// Handler.ReadData. A read that the peer refuses has no answer. It copies r.Spans. At most
	// MaxReads of an operation may be under way with a peer.
	Read(to int, r ReadRequest)
	// Register lets peers read a buffer until Unregister returns. It reports whether they
	// can now. If not, Handler.Registered says later that they can, or why not.
	Register(op OpKey, buf []byte) (ready bool)
	Unregister(op OpKey)
	// Cancel sees that puts of an operation end soon: those not begun, nor done, never begin.
	// Handler.PutDone is still called for each.
	Cancel(op OpKey)
	// Drop forgets a peer: what is queued for it is sent if that is possible soon, and
	// its connections are closed. It is not reported as lost.
	Drop(to int)
	Stats() map[int]PeerStats
	// Flush waits until what was sent has left this process, or the time is over. The
	// process may end then, and it still arrives.
	Flush(most time.Duration)
	// Close sends what is queued, says goodbye to all peers, and waits for it to
	// arrive, for a bounded time.
	Close() error
}

// PeerStats counts the traffic with one peer, our headers included.
type PeerStats struct {
	Sent, Received uint64 // bytes
}

// A Handler is told what comes from peers. Its methods are called by the
// fabric's goroutines, for one peer in order, and must not block for long.
type Handler interface {
	// Message is valid until it returns.
	Message(from int, msg []byte)
	// Data is a part of a piece: bytes from off on. The parts of a piece come in order; an
	// empty piece has one empty part. The handler releases b.
	Data(from int, p Piece, off int64, b *Buffer)
	// PutDone ends a Put; in any order, and maybe from within Put.
	PutDone(to int, p Piece)
	// ReadData is a part of the answer to a Read: bytes from off on, in order. The handler
	// releases b.
	ReadData(from int, id ReadID, off int64, b *Buffer)
	// Registered ends a Register that was not ready. With an error, nothing can be read or
	// sent for the operation.
	Registered(op OpKey, err error)
	// Lost says that the peer's connection is gone or cannot be made, once per peer. A peer
	// that said goodbye counts too.
	Lost(peer int, err error)
}

// A Buffer is memory of the fabric that holds received bytes until it is released.
type Buffer struct {
	B    []byte
	Free func(*Buffer) // nil: garbage collection does
}

// Release gives the buffer back.
func (b *Buffer) Release() {
	if b.Free != nil {
		b.Free(b)
	}
}

// Errors.
var (
	ErrBusy    = errors.New("the network has no room now")
	ErrClosed  = errors.New("fabric closed")
	ErrGoodbye = errors.New("the peer has left")
)
