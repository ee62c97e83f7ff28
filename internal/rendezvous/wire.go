package rendezvous

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Limits of the memory that a peer can make this rank use.
const (
	MaxBlob   = 64 << 10 // bytes of one rank in an Exchange
	maxString = 255
	maxText   = 4 << 10
)

type frameType byte

const (
	frameHello   frameType = 1 + iota
	frameWelcome           // seed
	frameVerdict
	frameBlob   // sequence number, bytes
	frameResult // sequence number, bytes for all ranks
	frameLeave  // reason

	frameRelay   // rank, a frame of the following types, frameLeave or frameBlob
	frameArrival // a rank's address and hello
	frameRefused // address of a process whose key is wrong
	frameLost    // reason why the connection to a rank ended

	frameOffer  // entry of a rank that passes results on
	frameTaken  // the sender passes results on to the receiver
	frameDirect // the sender wants results from rank 0
)

// A frame is its type, three zero bytes, the length of the payload, and the payload. All numbers are little
// endian.
const frameHeader = 8

// newFrame returns the header of a frame. The caller appends the payload, of exactly this length.
func newFrame(t frameType, payload int) []byte {
	b := make([]byte, frameHeader, frameHeader+payload)
	b[0] = byte(t)
	binary.LittleEndian.PutUint32(b[4:], uint32(payload))
	return b
}

type frame struct {
	typ     frameType
	payload []byte
}

func (f frame) bytes() []byte { return append(newFrame(f.typ, len(f.payload)), f.payload...) }

// limits maps types of frames to their maximal length; readFrame refuses other types.
type limits map[frameType]int

var fromChild = limits{
	frameBlob: 4 + MaxBlob, frameLeave: 1, frameRelay: 4 + frameHeader + 4 + MaxBlob,
	frameOffer: maxEntry, frameDirect: 0,
}

func fromParent(size int) limits {
	return limits{
		frameWelcome: seedSize + maxEntry,
		frameTaken:   0,
		frameVerdict: verdictHeader + 4*size + maxText,
		frameResult:  4 + size*(4+MaxBlob),
		frameLeave:   1,
	}
}

func readFrame(r io.Reader, lim limits) (frame, error) {
	var h [frameHeader]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return frame{}, err
	}
	t := frameType(h[0])
	n := int64(binary.LittleEndian.Uint32(h[4:]))
	limit, known := lim[t]
	switch {
	case !known || h[1]|h[2]|h[3] != 0:
		return frame{}, fmt.Errorf("%w: frame of unknown type %x", ErrProtocol, h[:4])
	case n > int64(limit):
		return frame{}, fmt.Errorf("%w: frame of %d bytes, at most %d are allowed", ErrProtocol, n, limit)
	}
	var payload bytes.Buffer // grows as bytes arrive, so that a false length costs no memory
	if _, err := io.CopyN(&payload, r, n); errors.Is(err, io.EOF) {
		return frame{}, io.ErrUnexpectedEOF // the stream ended within a frame
	} else if err != nil {
		return frame{}, err
	}
	return frame{t, payload.Bytes()}, nil
}
