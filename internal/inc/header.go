package inc

import "encoding/binary"

// A Header precedes the payload of every datagram between ranks and aggregators.
type Header struct {
	Kind    Kind
	Try     uint8  // number of the request that this datagram answers; 0 for the first transmission
	Type    uint8  // element type, in the driver's encoding
	Reduce  uint8  // operator, in the driver's encoding
	Session uint32 // of the job
	Token   uint64 // of the operation; without the session's secret, an attacker cannot guess it
	Comm    uint32
	Number  uint32 // of the operation in its communicator
	Place   uint32
	Owner   uint16 // world rank that receives the sum
	Child   uint16 // position of the sender among the children of the receiving aggregator
}

// Kind is the kind of a datagram. The numbers are part of the wire format.
type Kind uint8

// Kinds of datagrams.
const (
	Contribution Kind = 1 + iota // from a child to its aggregator
	Result                       // from the top aggregator to the owner
	Offer                        // from a rank to its aggregator: it can send its contribution again; without payload
	Want                         // from an aggregator to a rank: it misses the contribution; without payload
)

// HeaderSize is the size of an encoded Header.
const HeaderSize = 32

// Put encodes h to b in little endian.
func (h *Header) Put(b []byte) {
	_ = b[HeaderSize-1]
	b[0], b[1], b[2], b[3] = uint8(h.Kind), h.Try, h.Type, h.Reduce
	le := binary.LittleEndian
	le.PutUint32(b[4:], h.Session)
	le.PutUint64(b[8:], h.Token)
	le.PutUint32(b[16:], h.Comm)
	le.PutUint32(b[20:], h.Number)
	le.PutUint32(b[24:], h.Place)
	le.PutUint16(b[28:], h.Owner)
	le.PutUint16(b[30:], h.Child)
}

// ParseHeader decodes a header that Put encoded.
func ParseHeader(b []byte) Header {
	_ = b[HeaderSize-1]
	le := binary.LittleEndian
	return Header{
		Kind: Kind(b[0]), Try: b[1], Type: b[2], Reduce: b[3],
		Session: le.Uint32(b[4:]), Token: le.Uint64(b[8:]), Comm: le.Uint32(b[16:]), Number: le.Uint32(b[20:]),
		Place: le.Uint32(b[24:]), Owner: le.Uint16(b[28:]), Child: le.Uint16(b[30:]),
	}
}
