package wire

import (
	"encoding/binary"
	"hash/crc32"
)

// Header precedes the payload of every datagram.
type Header struct {
	Token uint64 // of the operation; without the job's key, an attacker cannot guess it
	Comm  uint32
	Imm   uint32 // slot and PSN (Layout)
	Sum   uint32 // checksum of the other fields and the payload (Checksum), where fabric.Capabilities has room for it
}

// HeaderSize is the size of an encoded Header without its Sum, SumSize the size of the Sum.
const (
	HeaderSize = 16
	SumSize    = 4
)

// Put encodes h to b in little endian, without its Sum.
func (h Header) Put(b []byte) {
	_ = b[HeaderSize-1]
	binary.LittleEndian.PutUint64(b, h.Token)
	binary.LittleEndian.PutUint32(b[8:], h.Comm)
	binary.LittleEndian.PutUint32(b[12:], h.Imm)
}

// ParseHeader decodes a header that Put encoded.
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

// ParseSum decodes a header that PutSum encoded.
func ParseSum(b []byte) Header {
	h := ParseHeader(b)
	h.Sum = binary.LittleEndian.Uint32(b[HeaderSize:])
	return h
}

// Checksum returns the correct Sum: CRC32C over the encoded header and the payload.
func (h Header) Checksum(payload []byte) uint32 {
	var b [HeaderSize]byte
	h.Put(b[:])
	// By hand: a slice of b that is passed to crc32 would escape to the heap.
	crc := ^uint32(0)
	for _, v := range b {
		crc = castagnoli[byte(crc)^v] ^ crc>>8
	}
	return crc32.Update(^crc, castagnoli, payload)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
