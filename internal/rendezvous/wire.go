package rendezvous

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Limits of what a peer can make this rank hold.
const (
	MaxBlob   = 64 << 10 // bytes that a rank gives to an Exchange
	MaxSize   = 1 << 15  // ranks: the blobs of all fit a frame's 32-bit length
	maxString = 255
	maxText   = 4 << 10
)

type frameType byte

const (
	frameHello   frameType = 1 + iota
	frameWelcome           // seed
	frameVerdict
	frameBlob  // sequence number, bytes
	frameAll   // sequence number, lengths, bytes
	frameLeave // reason
)

// A frame is its type, three zero bytes and the length of the payload, little
// endian like everything here.
const frameHeader = 8

func newFrame(t frameType, payload int) []byte {
	b := make([]byte, frameHeader, frameHeader+payload)
	b[0] = byte(t)
	return b
}

// sealFrame writes the length, now that the payload is there.
func sealFrame(b []byte) []byte {
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)-frameHeader))
	return b
}

type frame struct {
	typ     frameType
	payload []byte
}

// limits says how long a frame may be; types that are not listed are refused.
type limits map[frameType]int

func fromRank() limits {
	return limits{frameBlob: 4 + MaxBlob, frameLeave: 1}
}

func fromRoot(size int) limits {
	return limits{
		frameWelcome: seedSize,
		frameVerdict: verdictHeader + 4*size + maxText,
		frameAll:     4 + size*(4+MaxBlob),
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
	most, known := lim[t]
	switch {
	case !known || h[1]|h[2]|h[3] != 0:
		return frame{}, fmt.Errorf("%w: frame of unknown type %x", ErrProtocol, h[:4])
	case n > int64(most):
		return frame{}, fmt.Errorf("%w: frame of %d bytes, at most %d are allowed", ErrProtocol, n, most)
	}
	p, err := readGrowing(r, int(n))
	return frame{t, p}, err
}

// readGrowing reads n bytes into a buffer that grows with what arrives, not with
// what was announced.
func readGrowing(r io.Reader, n int) ([]byte, error) {
	const atOnce = 256 << 10
	var p []byte
	for len(p) < n {
		have := len(p)
		more := min(n-have, max(have, atOnce))
		p = slices.Grow(p, more)[:have+more]
		if _, err := io.ReadFull(r, p[have:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF // in the middle of a frame
			}
			return nil, err
		}
	}
	return p, nil
}
