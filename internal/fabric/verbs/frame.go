//go:build verbs

package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

// What goes over a reliable connection is frames, one a slot: a header, then the payload
// of messages and data. All have the same header, little endian:
//
//	kind u8, no u8, zero u16, payload length u32, grant u32, comm u32, seq u64,
//	nth u32, rkey u32, id u64, length u64, offset u64
type frameKind uint8

const (
	frameMessage frameKind = 1 + iota
	frameData              // part of a piece: nth, length of the piece, offset in it
	frameAsk               // where is the buffer of this operation?
	frameHere              // there: rkey, id: the address, length; with no: nowhere
	frameCheck             // are you still there? id: of the read
	frameChecked           // yes, or with no: no
	frameRevoke            // forget where the buffer was, when no read is under way
	frameRevoked           // it is forgotten
	frameCredit            // nothing but the grant
	frameGoodbye
	frameEnd // there are none from here on
)

// answers reports whether frames of this kind answer one of the peer's.
func (k frameKind) answers() bool { return k == frameHere || k == frameChecked || k == frameRevoked }

const (
	frameHeader = 56
	// framePayload is what a slot holds besides. Every message of the protocol must fit.
	framePayload = 16 << 10
	slotSize     = frameHeader + framePayload + 8 // whole cache lines
)

const _ = uint(framePayload - wire.MaxMsg)

// errFrame marks what no correct peer sends.
var errFrame = errors.New("malformed frame")

// frame is a decoded header.
type frame struct {
	kind  frameKind
	no    bool
	n     int    // length of the payload
	grant uint32 // frames that the sender of this one has had room for so far
	op    fabric.OpKey
	nth   uint32
	rkey  uint32
	id    uint64
	len   int64
	off   int64
}

func (f *frame) put(b []byte) {
	le := binary.LittleEndian
	_ = b[frameHeader-1]
	b[0], b[1], b[2], b[3] = byte(f.kind), 0, 0, 0
	if f.no {
		b[1] = 1
	}
	le.PutUint32(b[4:], uint32(f.n))
	le.PutUint32(b[8:], f.grant)
	le.PutUint32(b[12:], f.op.Comm)
	le.PutUint64(b[16:], f.op.Seq)
	le.PutUint32(b[24:], f.nth)
	le.PutUint32(b[28:], f.rkey)
	le.PutUint64(b[32:], f.id)
	le.PutUint64(b[40:], uint64(f.len))
	le.PutUint64(b[48:], uint64(f.off))
}

// parseFrame decodes a received frame. All numbers of what it returns are in range, one by
// one and together.
func parseFrame(b []byte) (f frame, payload []byte, err error) {
	if len(b) < frameHeader {
		return f, nil, fmt.Errorf("%w: %d bytes", errFrame, len(b))
	}
	le := binary.LittleEndian
	f = frame{
		kind: frameKind(b[0]), no: b[1] == 1, grant: le.Uint32(b[8:]), op: fabric.OpKey{Comm: le.Uint32(b[12:]), Seq: le.Uint64(b[16:])},
		nth: le.Uint32(b[24:]), rkey: le.Uint32(b[28:]), id: le.Uint64(b[32:]), len: int64(le.Uint64(b[40:])), off: int64(le.Uint64(b[48:])),
	}
	n := le.Uint32(b[4:])
	payload = b[frameHeader:]
	switch {
	case f.kind < frameMessage || f.kind >= frameEnd || b[1] > 1 || b[2]|b[3] != 0:
		return f, nil, fmt.Errorf("%w: kind %d", errFrame, f.kind)
	case uint64(n) != uint64(len(payload)) || n > framePayload || n > 0 && f.kind != frameMessage && f.kind != frameData:
		return f, nil, fmt.Errorf("%w: kind %d with a payload of %d bytes in %d", errFrame, f.kind, n, len(payload))
	case f.len < 0 || f.off < 0 || f.len > math.MaxInt64-f.off:
		return f, nil, fmt.Errorf("%w: range %d+%d", errFrame, f.off, f.len)
	case f.kind == frameData && (f.off > f.len || int64(n) > f.len-f.off || n == 0 && f.len > 0):
		return f, nil, fmt.Errorf("%w: %d bytes at %d of %d", errFrame, n, f.off, f.len)
	}
	f.n = int(n)
	return f, payload, nil
}
