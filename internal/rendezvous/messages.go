package rendezvous

import (
	"encoding/binary"
	"fmt"
	"math"
)

const seedSize = 32

// hello is a rank's view of the job. Its encoding never changes, because ranks of different versions detect
// each other by it.
type hello struct {
	rank, size       int
	version, program string
}

func (h hello) frame() []byte {
	b := newFrame(frameHello, 10+len(h.version)+len(h.program))
	b = binary.LittleEndian.AppendUint32(b, uint32(h.rank))
	b = binary.LittleEndian.AppendUint32(b, uint32(h.size))
	b = append(append(b, byte(len(h.version))), h.version...)
	return append(append(b, byte(len(h.program))), h.program...)
}

var helloLimits = limits{frameHello: 10 + 2*maxString}

func decodeHello(p []byte) (hello, error) {
	bad := fmt.Errorf("%w: hello", ErrProtocol)
	if len(p) < 8 {
		return hello{}, bad
	}
	rank, size := binary.LittleEndian.Uint32(p), binary.LittleEndian.Uint32(p[4:])
	if size > math.MaxInt32 || rank >= size {
		return hello{}, bad
	}
	h := hello{rank: int(rank), size: int(size)}
	p = p[8:]
	for _, s := range []*string{&h.version, &h.program} {
		if len(p) == 0 || len(p) < 1+int(p[0]) {
			return hello{}, bad
		}
		n := 1 + int(p[0])
		*s, p = string(p[1:n]), p[n:]
	}
	if len(p) != 0 {
		return hello{}, bad
	}
	return h, nil
}

func welcomeFrame(seed [seedSize]byte) []byte {
	return append(newFrame(frameWelcome, seedSize), seed[:]...)
}

// reason is why a rank leaves.
type reason byte

const (
	leftClosed   reason = iota // it called Close
	leftCanceled               // its context was cancelled
	leftDeadline               // its time for waiting ended because other ranks are late
)

var reasons = []string{
	leftClosed: "closed its session", leftCanceled: "was cancelled", leftDeadline: "gave up waiting",
}

func (r reason) String() string { return reasons[r] }

func leaveFrame(r reason) []byte {
	return append(newFrame(frameLeave, 1), byte(r))
}

func decodeLeave(p []byte) (reason, error) {
	if len(p) != 1 || int(p[0]) >= len(reasons) {
		return 0, fmt.Errorf("%w: leave", ErrProtocol)
	}
	return reason(p[0]), nil
}

func blobFrame(seq uint32, blob []byte) []byte {
	b := newFrame(frameBlob, 4+len(blob))
	b = binary.LittleEndian.AppendUint32(b, seq)
	return append(b, blob...)
}

func decodeBlob(p []byte) (seq uint32, blob []byte, err error) {
	if len(p) < 4 || len(p) > 4+MaxBlob {
		return 0, nil, fmt.Errorf("%w: blob of %d bytes", ErrProtocol, len(p))
	}
	return binary.LittleEndian.Uint32(p), p[4:], nil
}

func allFrame(seq uint32, blobs [][]byte) []byte {
	n := 4
	for _, blob := range blobs {
		n += 4 + len(blob)
	}
	b := newFrame(frameAll, n)
	b = binary.LittleEndian.AppendUint32(b, seq)
	for _, blob := range blobs {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(blob)))
	}
	for _, blob := range blobs {
		b = append(b, blob...)
	}
	return b
}

func decodeAll(p []byte, size int) (seq uint32, blobs [][]byte, err error) {
	bad := fmt.Errorf("%w: blobs of all ranks", ErrProtocol)
	if len(p) < 4+4*size {
		return 0, nil, bad
	}
	seq = binary.LittleEndian.Uint32(p)
	lens, data := p[4:4+4*size], p[4+4*size:]
	blobs = make([][]byte, size)
	for i := range blobs {
		n := int64(binary.LittleEndian.Uint32(lens[4*i:]))
		if n > MaxBlob || n > int64(len(data)) {
			return 0, nil, bad
		}
		// Capped, so that appending to one blob cannot write into the next.
		blobs[i], data = data[:n:n], data[n:]
	}
	if len(data) != 0 {
		return 0, nil, bad
	}
	return seq, blobs, nil
}
