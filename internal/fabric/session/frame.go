// Package session is the part of the reliable side that all networks share: the frames and their
// order, the life of a peer from its first connection to its goodbye, credit, and limits.
//
// It performs no I/O. A driver (packages ip and verbs) tells it what happened: a frame arrived, a
// connection opened or broke, time is over. It answers what the driver has to do: report a loss,
// say goodbye, close. Each type has one caller at a time; the drivers use it under their locks.
package session

import (
	"errors"
	"fmt"

	"github.com/allcast/allcast/internal/fabric"
)

// Kind is the kind of a frame. Each network carries a subset.
type Kind uint8

// The kinds of frames. With No set, the answers Here and Checked are negative. Slots carry these numbers,
// up to Goodbye.
const (
	None    Kind = iota
	Message      // payload: a message
	Data         // payload: a part of a piece
	Ask          // asks where the buffer of the operation is
	Here         // answers Ask: RKey, ID (the address) and Len of the buffer
	Check        // asks whether the buffer is still registered, after read ID
	Checked      // answers Check
	Revoke       // asks to forget the buffer, after the last read
	Revoked      // answers Revoke
	Credit       // carries only a Grant
	Goodbye      // ends the connection in order
	Read         // payload: spans that the sender wants to read
	Answer       // payload: a part of the answer to a Read
)

// Answers reports whether frames of this kind answer one of the peer's.
func (k Kind) Answers() bool { return k == Here || k == Checked || k == Revoked }

// Frame is a decoded frame without its payload.
type Frame struct {
	Kind  Kind
	No    bool
	Grant uint32 // see CreditAccount
	N     int    // length of the payload
	Op    fabric.OpKey
	Nth   uint32 // of the piece
	RKey  uint32
	ID    uint64 // of a read, or an address
	Len   int64  // of the whole piece, answer or buffer
	Off   int64  // offset of the payload in the piece or answer
}

// Piece is the piece that a Data frame belongs to.
func (f *Frame) Piece() fabric.Piece { return fabric.Piece{Op: f.Op, Nth: f.Nth, Len: f.Len} }

// ReadID is the read that a frame belongs to.
func (f *Frame) ReadID() fabric.ReadID { return fabric.ReadID{Op: f.Op, ID: f.ID} }

const (
	// MaxMessage is the longest message.
	MaxMessage = 16 << 10
	// MaxPart is the largest part of a piece or an answer that a handler receives at once.
	MaxPart = 256 << 10
)

// ErrMalformed marks input that no correct peer sends.
var ErrMalformed = errors.New("malformed frame")

// checkPart checks the offsets of a frame's payload.
func (f *Frame) checkPart() error {
	if f.Len < 0 || f.Off < 0 || f.Off > f.Len || int64(f.N) > f.Len-f.Off || f.N == 0 && f.Len > 0 {
		return fmt.Errorf("%w: %d bytes at %d of %d", ErrMalformed, f.N, f.Off, f.Len)
	}
	return nil
}

// Order checks that the parts of a piece, or of an answer, arrive in order. A cancelled piece stops
// between two parts. The zero value is ready to use.
type Order struct {
	next Frame // the part that may continue the last one; its Kind is None when none may
}

// Next checks a frame. A frame that is no part ends the piece before it.
func (o *Order) Next(f *Frame) error {
	if f.Kind != Data && f.Kind != Answer {
		o.next.Kind = None
		return nil
	}
	next := o.next
	o.next.Kind = None // also after an error
	if f.Off > 0 {
		next.N, next.Grant = f.N, f.Grant
		if next != *f {
			return fmt.Errorf("%w: a part at %d of %d continues nothing", ErrMalformed, f.Off, f.Len)
		}
	}
	if end := f.Off + int64(f.N); end < f.Len {
		o.next = *f
		o.next.Off = end
	}
	return nil
}

// Reads counts the reads of a peer that wait for an answer, by operation.
type Reads map[fabric.OpKey]int

// Begin counts a read. It fails if the peer has fabric.MaxReads reads of the operation under way.
func (r Reads) Begin(op fabric.OpKey) error {
	if r[op] == fabric.MaxReads {
		return fmt.Errorf("%w: more than %d reads of an operation at a time", ErrMalformed, fabric.MaxReads)
	}
	r[op]++
	return nil
}

// End says that a read is answered or refused.
func (r Reads) End(op fabric.OpKey) {
	if r[op]--; r[op] == 0 {
		delete(r, op)
	}
}
