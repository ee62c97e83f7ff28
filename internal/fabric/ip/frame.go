package ip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/protocol"
)

// A reliable connection carries frames, little endian:
//
//	kind u8, zero u8[3], payload length u32, then by kind
//	  message:  nothing
//	  data:     comm u32, nth u32, seq u64, length of the piece u64, offset in it u64
//	  read:     comm u32, zero u32, seq u64, id u64, offset u64, length u64
//	  answer:   as read, then the offset in the range u64
//	  goodbye:  nothing
//
// and the payload. A piece, and what answers a read, come as consecutive frames;
// one that was cancelled just stops between two of them.
type frameKind uint8

const (
	frameNone frameKind = iota
	frameMessage
	frameData
	frameRead
	frameAnswer
	frameGoodbye
	frameRecord // never sent: see peerItem
)

const (
	framePrefix    = 8
	frameMaxHeader = framePrefix + 48
	// frameMaxPart bounds the payload of data and answers, and with it what a frame
	// makes the receiver hold.
	frameMaxPart = 256 << 10
	// MaxMessage is the longest message that Send takes.
	MaxMessage = 16 << 10
)

// Every message of the protocol must fit.
const _ = uint(MaxMessage - protocol.MaxMsg)

var frameHeaderSize = [...]int{
	frameMessage: framePrefix,
	frameData:    framePrefix + 32,
	frameRead:    framePrefix + 40,
	frameAnswer:  framePrefix + 48,
	frameGoodbye: framePrefix,
}

// errFrame marks what no correct peer sends.
var errFrame = errors.New("malformed frame")

// frameHeader is a decoded header.
type frameHeader struct {
	kind frameKind
	n    int // length of the payload
	op   fabric.OpKey
	nth  uint32 // data: of the piece
	id   uint64 // read, answer
	off  int64  // read, answer: of the range
	len  int64  // of the whole piece or range
	part int64  // data, answer: where the payload belongs in it
}

func (h *frameHeader) piece() fabric.Piece {
	return fabric.Piece{Op: h.op, Nth: h.nth, Len: h.len}
}

func (h *frameHeader) rng() fabric.Range {
	return fabric.Range{Op: h.op, ID: h.id, Off: h.off, Len: h.len}
}

// frameAppend appends the encoding of h to b.
func frameAppend(b []byte, h *frameHeader) []byte {
	le := binary.LittleEndian
	b = append(b, byte(h.kind), 0, 0, 0)
	b = le.AppendUint32(b, uint32(h.n))
	switch h.kind {
	case frameData:
		b = le.AppendUint32(b, h.op.Comm)
		b = le.AppendUint32(b, h.nth)
		b = le.AppendUint64(b, h.op.Seq)
		b = le.AppendUint64(b, uint64(h.len))
		b = le.AppendUint64(b, uint64(h.part))
	case frameRead, frameAnswer:
		b = le.AppendUint32(b, h.op.Comm)
		b = le.AppendUint32(b, 0)
		b = le.AppendUint64(b, h.op.Seq)
		b = le.AppendUint64(b, h.id)
		b = le.AppendUint64(b, uint64(h.off))
		b = le.AppendUint64(b, uint64(h.len))
		if h.kind == frameAnswer {
			b = le.AppendUint64(b, uint64(h.part))
		}
	}
	return b
}

// frameSize says how long the header is that begins with the prefix b.
func frameSize(b []byte) (int, error) {
	k := int(b[0])
	if k == int(frameNone) || k >= len(frameHeaderSize) {
		return 0, fmt.Errorf("%w: kind %d", errFrame, k)
	}
	return frameHeaderSize[k], nil
}

// frameParse decodes a header of frameSize bytes. All numbers of what it returns
// are in range, one by one and together.
func frameParse(b []byte) (frameHeader, error) {
	le := binary.LittleEndian
	h := frameHeader{kind: frameKind(b[0])}
	n := le.Uint32(b[4:])
	if b[1]|b[2]|b[3] != 0 {
		return h, fmt.Errorf("%w: reserved bytes are not zero", errFrame)
	}
	var limit uint32
	switch h.kind {
	case frameMessage:
		limit = MaxMessage
	case frameData, frameAnswer:
		limit = frameMaxPart
	}
	if n > limit {
		return h, fmt.Errorf("%w: kind %d with a payload of %d bytes", errFrame, h.kind, n)
	}
	h.n = int(n)
	switch b = b[framePrefix:]; h.kind {
	case frameData:
		h.op = fabric.OpKey{Comm: le.Uint32(b), Seq: le.Uint64(b[8:])}
		h.nth = le.Uint32(b[4:])
		h.len, h.part = int64(le.Uint64(b[16:])), int64(le.Uint64(b[24:]))
	case frameRead, frameAnswer:
		if le.Uint32(b[4:]) != 0 {
			return h, fmt.Errorf("%w: reserved bytes are not zero", errFrame)
		}
		h.op = fabric.OpKey{Comm: le.Uint32(b), Seq: le.Uint64(b[8:])}
		h.id = le.Uint64(b[16:])
		h.off, h.len = int64(le.Uint64(b[24:])), int64(le.Uint64(b[32:]))
		if h.kind == frameAnswer {
			h.part = int64(le.Uint64(b[40:]))
		}
	}
	switch {
	case h.off < 0 || h.len < 0 || h.part < 0 || h.len > math.MaxInt64-h.off:
		return h, fmt.Errorf("%w: range %d+%d, part at %d", errFrame, h.off, h.len, h.part)
	case h.kind != frameData && h.kind != frameAnswer:
	case h.part > h.len || int64(h.n) > h.len-h.part, h.n == 0 && h.len > 0:
		return h, fmt.Errorf("%w: %d bytes at %d of %d", errFrame, h.n, h.part, h.len)
	}
	return h, nil
}
