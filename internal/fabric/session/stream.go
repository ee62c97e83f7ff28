package session

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/allcast/allcast/internal/fabric"
)

// On a byte stream (TCP), a frame is a header, little endian, and its payload:
//
//	kind u8, zero u8[3], payload length u32, then by kind
//	  message:  nothing
//	  data:     comm u32, nth u32, seq u64, length of the piece u64, offset in it u64
//	  read:     comm u32, zero u32, seq u64, id u64
//	  answer:   as read, then length of the answer u64, offset in it u64
//	  goodbye:  nothing
//
// The payload of a read is a list of spans, each with offset u64 and length u32. A piece, and the
// answer to a read, come as consecutive frames.
const (
	StreamPrefix    = 8 // bytes that tell the length of a header (StreamSize)
	StreamMaxHeader = StreamPrefix + 40
	SpanSize        = 12 // bytes of an encoded span
)

// A reader hands out the payload of a read from inside a buffer for messages.
const _ = uint(MaxMessage - fabric.MaxSpans*SpanSize)

var (
	streamCodes = [...]byte{Message: 1, Data: 2, Read: 3, Answer: 4, Goodbye: 5}
	streamKinds = [...]Kind{None, Message, Data, Read, Answer, Goodbye}
	streamSizes = [...]int{
		0, StreamPrefix, StreamPrefix + 32, StreamPrefix + 24, StreamPrefix + 40, StreamPrefix,
	}
	streamLimits = [...]uint32{0, MaxMessage, MaxPart, fabric.MaxSpans * SpanSize, MaxPart, 0}
)

// AppendSpans appends the payload of a read.
func AppendSpans(b []byte, spans []fabric.Span) []byte {
	for _, s := range spans {
		b = binary.LittleEndian.AppendUint64(b, uint64(s.Off))
		b = binary.LittleEndian.AppendUint32(b, uint32(s.Len))
	}
	return b
}

// ParseSpans decodes the payload of a read. All offsets and ends are in range.
func ParseSpans(b []byte) ([]fabric.Span, error) {
	if len(b) == 0 || len(b)%SpanSize != 0 {
		return nil, fmt.Errorf("%w: a read of %d bytes", ErrMalformed, len(b))
	}
	spans := make([]fabric.Span, 0, len(b)/SpanSize)
	for ; len(b) > 0; b = b[SpanSize:] {
		s := fabric.Span{Off: int64(binary.LittleEndian.Uint64(b)), Len: int64(binary.LittleEndian.Uint32(b[8:]))}
		if s.Off < 0 || s.Len > math.MaxInt64-s.Off {
			return nil, fmt.Errorf("%w: range %d+%d", ErrMalformed, s.Off, s.Len)
		}
		spans = append(spans, s)
	}
	return spans, nil
}

// AppendStream appends the header of f to b, for a byte stream.
func (f *Frame) AppendStream(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, streamCodes[f.Kind], 0, 0, 0)
	b = le.AppendUint32(b, uint32(f.N))
	if f.Kind == Message || f.Kind == Goodbye {
		return b
	}
	b = le.AppendUint32(b, f.Op.Comm)
	b = le.AppendUint32(b, f.Nth)
	b = le.AppendUint64(b, f.Op.Seq)
	if f.Kind != Data {
		b = le.AppendUint64(b, f.ID)
	}
	if f.Kind != Read {
		b = le.AppendUint64(b, uint64(f.Len))
		b = le.AppendUint64(b, uint64(f.Off))
	}
	return b
}

// StreamSize is the length of the header that begins with b, of at least StreamPrefix bytes.
func StreamSize(b []byte) (int, error) {
	if b[0] == 0 || int(b[0]) >= len(streamSizes) {
		return 0, fmt.Errorf("%w: kind %d", ErrMalformed, b[0])
	}
	return streamSizes[b[0]], nil
}

// ParseStream decodes a header of StreamSize bytes. All numbers of the frame are in range, one by
// one and together.
func ParseStream(b []byte) (Frame, error) {
	le := binary.LittleEndian
	f := Frame{Kind: streamKinds[b[0]]}
	n := le.Uint32(b[4:])
	if b[1]|b[2]|b[3] != 0 {
		return f, fmt.Errorf("%w: reserved bytes are not zero", ErrMalformed)
	}
	if n > streamLimits[b[0]] {
		return f, fmt.Errorf("%w: kind %d with a payload of %d bytes", ErrMalformed, b[0], n)
	}
	f.N = int(n)
	if f.Kind == Message || f.Kind == Goodbye {
		return f, nil
	}
	b = b[StreamPrefix:]
	f.Op = fabric.OpKey{Comm: le.Uint32(b), Seq: le.Uint64(b[8:])}
	f.Nth = le.Uint32(b[4:])
	b = b[16:]
	if f.Kind != Data {
		if f.Nth != 0 {
			return f, fmt.Errorf("%w: reserved bytes are not zero", ErrMalformed)
		}
		f.ID = le.Uint64(b)
		b = b[8:]
	}
	if f.Kind == Read {
		return f, nil
	}
	f.Len, f.Off = int64(le.Uint64(b)), int64(le.Uint64(b[8:]))
	return f, f.checkPart()
}
