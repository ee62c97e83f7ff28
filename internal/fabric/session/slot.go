package session

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/allcast/allcast/internal/fabric"
)

// On a message network (RC queue pairs), each frame fills one receive slot of the peer: a header,
// then the payload of messages and data. All have the same header, little endian:
//
//	kind u8, no u8, zero u16, payload length u32, grant u32, comm u32, seq u64,
//	nth u32, rkey u32, id u64, length u64, offset u64
const (
	SlotHeader  = 56
	SlotPayload = MaxMessage                   // largest payload of a slot
	SlotSize    = SlotHeader + SlotPayload + 8 // whole cache lines
)

// PutSlot encodes the header of f to b.
func (f *Frame) PutSlot(b []byte) {
	le := binary.LittleEndian
	_ = b[SlotHeader-1]
	b[0], b[1], b[2], b[3] = byte(f.Kind), 0, 0, 0
	if f.No {
		b[1] = 1
	}
	le.PutUint32(b[4:], uint32(f.N))
	le.PutUint32(b[8:], f.Grant)
	le.PutUint32(b[12:], f.Op.Comm)
	le.PutUint64(b[16:], f.Op.Seq)
	le.PutUint32(b[24:], f.Nth)
	le.PutUint32(b[28:], f.RKey)
	le.PutUint64(b[32:], f.ID)
	le.PutUint64(b[40:], uint64(f.Len))
	le.PutUint64(b[48:], uint64(f.Off))
}

// ParseSlot decodes a received slot. All numbers of the frame are in range, one by one and together.
func ParseSlot(b []byte) (f Frame, payload []byte, err error) {
	if len(b) < SlotHeader {
		return f, nil, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	}
	le := binary.LittleEndian
	n := le.Uint32(b[4:])
	payload = b[SlotHeader:]
	if b[0] == 0 || Kind(b[0]) > Goodbye || b[1] > 1 || b[2]|b[3] != 0 {
		return f, nil, fmt.Errorf("%w: kind %d", ErrMalformed, b[0])
	}
	f = Frame{
		Kind: Kind(b[0]), No: b[1] == 1, Grant: le.Uint32(b[8:]),
		Op:  fabric.OpKey{Comm: le.Uint32(b[12:]), Seq: le.Uint64(b[16:])},
		Nth: le.Uint32(b[24:]), RKey: le.Uint32(b[28:]), ID: le.Uint64(b[32:]),
		Len: int64(le.Uint64(b[40:])), Off: int64(le.Uint64(b[48:])),
	}
	switch {
	case uint64(n) != uint64(len(payload)) || n > SlotPayload || n > 0 && f.Kind != Message && f.Kind != Data:
		return f, nil, fmt.Errorf("%w: kind %d with a payload of %d bytes in %d", ErrMalformed, b[0], n, len(payload))
	case f.Len < 0 || f.Off < 0 || f.Len > math.MaxInt64-f.Off:
		return f, nil, fmt.Errorf("%w: range %d+%d", ErrMalformed, f.Off, f.Len)
	}
	if f.N = int(n); f.Kind == Data {
		err = f.checkPart()
	}
	return f, payload, err
}
