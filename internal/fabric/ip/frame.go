package ip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

// A reliable connection carries frames, little endian:
//
//	kind u8, zero u8[3], payload length u32, then by kind
//	  message:  nothing
//	  data:     comm u32, nth u32, seq u64, length of the piece u64, offset in it u64
//	  read:     comm u32, zero u32, seq u64, id u64
//	  answer:   as read, then length of the answer u64, offset in it u64
//	  goodbye:  nothing
//
// and the payload. That of a read is a list of spans, each offset u64 and length u32. A piece,
// and the answer to a read, come as consecutive frames; one that was cancelled just stops
// between two of them.
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
	frameMaxHeader = framePrefix + 40
	frameSpan      = 12 // bytes of a span
	// frameMaxPart bounds the payload of data and answers, and with it what a frame
	// makes the receiver hold.
	frameMaxPart = 256 << 10
	// MaxMessage is the longest message that Send takes.
	MaxMessage = 16 << 10
)

// Every message of the protocol must fit, and every read: both are handed out from inside the
// reader's buffer.
const (
	_ = uint(MaxMessage - wire.MaxMsg)
	_ = uint(MaxMessage - fabric.MaxSpans*frameSpan)
)

var frameHeaderSize = [...]int{
	frameMessage: framePrefix,
	frameData:    framePrefix + 32,
	frameRead:    framePrefix + 24,
	frameAnswer:  framePrefix + 40,
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
	len  int64  // of the whole piece or answer
	part int64  // data, answer: where the payload belongs in it
}

func (h *frameHeader) piece() fabric.Piece {
	return fabric.Piece{Op: h.op, Nth: h.nth, Len: h.len}
}

func (h *frameHeader) read() fabric.ReadID { return fabric.ReadID{Op: h.op, ID: h.id} }

// frameAppendSpans appends the payload of a read.
func frameAppendSpans(b []byte, spans []fabric.Span) []byte {
	for _, s := range spans {
		b = binary.LittleEndian.AppendUint64(b, uint64(s.Off))
		b = binary.LittleEndian.AppendUint32(b, uint32(s.Len))
	}
	return b
}

// frameParseSpans decodes the payload of a read. All offsets and ends are in range.
func frameParseSpans(b []byte) ([]fabric.Span, error) {
	if len(b) == 0 || len(b)%frameSpan != 0 {
		return nil, fmt.Errorf("%w: a read of %d bytes", errFrame, len(b))
	}
	spans := make([]fabric.Span, 0, len(b)/frameSpan)
	for ; len(b) > 0; b = b[frameSpan:] {
		s := fabric.Span{Off: int64(binary.LittleEndian.Uint64(b)), Len: int64(binary.LittleEndian.Uint32(b[8:]))}
		if s.Off < 0 || s.Len > math.MaxInt64-s.Off {
			return nil, fmt.Errorf("%w: range %d+%d", errFrame, s.Off, s.Len)
		}
		spans = append(spans, s)
	}
	return spans, nil
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
		if h.kind == frameAnswer {
			b = le.AppendUint64(b, uint64(h.len))
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
	case frameRead:
		limit = fabric.MaxSpans * frameSpan
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
		if h.kind == frameAnswer {
			h.len, h.part = int64(le.Uint64(b[24:])), int64(le.Uint64(b[32:]))
		}
	}
	switch {
	case h.len < 0 || h.part < 0:
		return h, fmt.Errorf("%w: %d bytes, part at %d", errFrame, h.len, h.part)
	case h.kind != frameData && h.kind != frameAnswer:
	case h.part > h.len || int64(h.n) > h.len-h.part, h.n == 0 && h.len > 0:
		return h, fmt.Errorf("%w: %d bytes at %d of %d", errFrame, h.n, h.part, h.len)
	}
	return h, nil
}
