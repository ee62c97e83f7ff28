package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A message is encoded in little endian:
//
//	kind u8, comm u32, seq u64, then the fields that its kind uses.
//
// A u16 count precedes each list. The limits keep a peer from making a rank allocate more than the
// length of a message.
const (
	msgHeader = 13
	// MaxSubgroups limits the subgroups of an operation.
	MaxSubgroups = 1024
	// MaxStreams limits the streams per subgroup: messages number the streams of all subgroups in 16 bits.
	MaxStreams = 1 << 16 / MaxSubgroups
	// MaxRanges limits the ranges in one message.
	MaxRanges = 512
	// MaxMsg is the size of the longest message.
	MaxMsg = msgHeader + 4 + 8*max(MaxRanges, MaxSubgroups)
)

// ErrMalformed marks a message that cannot be decoded.
var ErrMalformed = errors.New("malformed message")

// AppendMsg appends the encoding of m to b.
func AppendMsg(b []byte, m *Msg) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(append(b, byte(m.Kind)), m.Comm)
	b = le.AppendUint64(b, m.Seq)
	switch m.Kind {
	case MsgBarrier:
		b = le.AppendUint64(append(b, m.Round), m.Grant)
		b = appendCall(le.AppendUint64(b, m.Digest), m.Call)
	case MsgReady:
		b = le.AppendUint64(appendCall(le.AppendUint64(b, m.Digest), m.Call), m.Grant)
	case MsgFetch, MsgAvail:
		b = appendRanges(le.AppendUint16(b, m.Stream), m.Ranges)
	case MsgEagerFetch:
		b = appendCall(le.AppendUint64(b, m.Digest), m.Call)
		b = appendRanges(b, m.Ranges)
	case MsgEagerSent:
		b = appendRanges(append(b, b2u(m.Flag)), m.Ranges)
	case MsgGrantUp, MsgGrant, MsgFinished, MsgIncGo:
		b = le.AppendUint64(b, m.Grant)
	case MsgFinishedUp:
		b = le.AppendUint64(le.AppendUint64(b, m.Grant), m.Digest)
	case MsgFinishedAsk:
		b = appendCall(le.AppendUint64(le.AppendUint64(b, m.Grant), m.Digest), m.Call)
	case MsgMark:
		b = append(le.AppendUint32(b, m.Rank), b2u(m.Flag))
		b = le.AppendUint16(b, uint16(len(m.Counts)))
		for _, n := range m.Counts {
			b = le.AppendUint32(b, n)
		}
	case MsgFinalSum:
		b = le.AppendUint64(b, m.Digest)
	case MsgIncAsk:
		b = appendRanges(append(le.AppendUint32(b, m.Rank), m.Round), m.Ranges)
	case MsgDead, MsgIncDown:
		b = le.AppendUint32(b, m.Rank)
	case MsgAbort:
		b = append(le.AppendUint32(b, m.Rank), m.Phase, m.Reason, b2u(m.Pair != nil))
		if m.Pair != nil {
			for i, c := range m.Pair.Calls {
				b = appendCall(le.AppendUint32(b, m.Pair.Ranks[i]), c)
			}
		}
	case MsgWaitState:
		b = append(le.AppendUint32(b, m.Rank), m.State)
	case MsgAgree:
		b = appendAgree(b, m.Agree)
	case MsgOffer:
		b = le.AppendUint64(b, m.Tag)
		b = le.AppendUint64(b, m.Bytes)
		b = append(b, b2u(m.Flag))
	case MsgCredit:
		b = le.AppendUint64(b, m.Bytes)
	}
	return b
}

func appendRanges(b []byte, ranges []Range) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(ranges)))
	for _, r := range ranges {
		b = binary.LittleEndian.AppendUint32(b, r.PSN)
		b = binary.LittleEndian.AppendUint32(b, r.N)
	}
	return b
}

func appendCall(b []byte, c Call) []byte {
	b = append(b, byte(c.Kind), byte(c.Algo))
	b = binary.LittleEndian.AppendUint16(b, c.Type)
	b = binary.LittleEndian.AppendUint32(b, c.Root)
	return binary.LittleEndian.AppendUint64(b, c.Bytes)
}

func b2u(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// ParseMsg decodes exactly one message.
func ParseMsg(b []byte) (Msg, error) {
	d := decoder{b: b}
	m := Msg{Kind: MsgKind(d.u8()), Comm: d.u32(), Seq: d.u64()}
	switch m.Kind {
	case MsgBarrier:
		m.Round, m.Grant, m.Digest, m.Call = d.u8(), d.u64(), d.u64(), d.call()
	case MsgReady:
		m.Digest, m.Call, m.Grant = d.u64(), d.call(), d.u64()
	case MsgFetch, MsgAvail:
		m.Stream, m.Ranges = d.u16(), d.ranges()
	case MsgEagerFetch:
		m.Digest, m.Call, m.Ranges = d.u64(), d.call(), d.ranges()
	case MsgEagerSent:
		m.Flag, m.Ranges = d.flag(), d.ranges()
	case MsgGrantUp, MsgGrant, MsgFinished, MsgIncGo:
		m.Grant = d.u64()
	case MsgFinishedUp:
		m.Grant, m.Digest = d.u64(), d.u64()
	case MsgFinishedAsk:
		m.Grant, m.Digest, m.Call = d.u64(), d.u64(), d.call()
	case MsgMark:
		m.Rank, m.Flag, m.Counts = d.u32(), d.flag(), list[uint32](&d, 4, MaxSubgroups)
		for i := range m.Counts {
			m.Counts[i] = d.u32()
		}
	case MsgFinalSum:
		m.Digest = d.u64()
	case MsgIncAsk:
		m.Rank, m.Round, m.Ranges = d.u32(), d.u8(), d.ranges()
	case MsgDead, MsgIncDown:
		m.Rank = d.u32()
	case MsgAbort:
		m.Rank, m.Phase, m.Reason = d.u32(), d.u8(), d.u8()
		if d.flag() {
			m.Pair = &CallPair{}
			for i := range m.Pair.Calls {
				m.Pair.Ranks[i], m.Pair.Calls[i] = d.u32(), d.call()
			}
		}
	case MsgWaitState:
		m.Rank, m.State = d.u32(), d.u8()
	case MsgAgree:
		m.Agree = d.agree()
	case MsgOffer:
		m.Tag, m.Bytes, m.Flag = d.u64(), d.u64(), d.flag()
	case MsgCredit:
		m.Bytes = d.u64()
	case MsgActivate, MsgChainSent, MsgSentUp, MsgAllSent, MsgFinal, MsgHeartbeat, MsgProbeWait,
		MsgAccept, MsgDiscard, MsgWithdraw, MsgWithdrawn:
	default:
		return Msg{}, fmt.Errorf("%w: unknown kind %d", ErrMalformed, m.Kind)
	}
	if d.bad {
		return Msg{}, fmt.Errorf("%w: kind %d cut short or out of range at %d bytes", ErrMalformed, m.Kind, len(b))
	}
	if len(d.b) != 0 {
		return Msg{}, fmt.Errorf("%w: kind %d has %d bytes too many", ErrMalformed, m.Kind, len(d.b))
	}
	return m, nil
}

// decoder takes fields off b. After the first field that does not fit, all fields are zero.
type decoder struct {
	b   []byte
	bad bool
}

var zeros [8]byte

func (d *decoder) take(n int) []byte {
	if len(d.b) < n {
		d.bad, d.b = true, nil
		return zeros[:n]
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) u8() uint8   { return d.take(1)[0] }
func (d *decoder) u16() uint16 { return binary.LittleEndian.Uint16(d.take(2)) }
func (d *decoder) u32() uint32 { return binary.LittleEndian.Uint32(d.take(4)) }
func (d *decoder) u64() uint64 { return binary.LittleEndian.Uint64(d.take(8)) }

func (d *decoder) call() Call {
	return Call{Kind: CallKind(d.u8()), Algo: Algorithm(d.u8()), Type: d.u16(), Root: d.u32(), Bytes: d.u64()}
}

func (d *decoder) ranges() []Range {
	ranges := list[Range](d, 8, MaxRanges)
	for i := range ranges {
		ranges[i] = Range{PSN: d.u32(), N: d.u32()}
	}
	return ranges
}

// flag takes a bool and rejects values other than 0 and 1.
func (d *decoder) flag() bool {
	v := d.u8()
	d.bad = d.bad || v > 1
	return v == 1
}

// list takes the length of a list and returns memory for it. All entries, of size bytes each, are present.
func list[T any](d *decoder, size, limit int) []T {
	n := int(d.u16())
	d.bad = d.bad || n > limit || n*size > len(d.b)
	if d.bad || n == 0 {
		return nil
	}
	return make([]T, n)
}
