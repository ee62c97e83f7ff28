package rendezvous

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

const seedSize = 32

// hello is a rank's view of the job. Its encoding never changes, because ranks of different versions detect
// each other by it. Versions up to 0.9.0 have no protocol number, which is 0 here.
type hello struct {
	rank, size       int
	protocol         int
	version, program string
}

func (h hello) frame() []byte {
	version := h.version
	if h.protocol != 0 {
		version = fmt.Sprintf("%d/%s", h.protocol, h.version)
	}
	b := newFrame(frameHello, 10+len(version)+len(h.program))
	b = binary.LittleEndian.AppendUint32(b, uint32(h.rank))
	b = binary.LittleEndian.AppendUint32(b, uint32(h.size))
	b = append(append(b, byte(len(version))), version...)
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
	if number, version, ok := strings.Cut(h.version, "/"); ok {
		if n, err := strconv.Atoi(number); err == nil && n > 0 && strconv.Itoa(n) == number {
			h.protocol, h.version = n, version
		}
	}
	return h, nil
}

// welcomeFrame carries the seed and, if the rank gets results from a rank other than 0, that rank's entry.
func welcomeFrame(seed [seedSize]byte, from entry) []byte {
	e := from.binary()
	return append(append(newFrame(frameWelcome, seedSize+len(e)), seed[:]...), e...)
}

func decodeWelcome(p []byte) (seed [seedSize]byte, from entry, err error) {
	if len(p) < seedSize {
		return seed, from, fmt.Errorf("%w: welcome", ErrProtocol)
	}
	from, err = parseEntry(p[seedSize:])
	return [seedSize]byte(p), from, err
}

// maxEntry is the longest entry in a frame.
const maxEntry = len(incarnation{}) + maxString

// binary encodes an entry for a frame; the zero entry is empty.
func (e entry) binary() []byte {
	if !e.addr.IsValid() {
		return nil
	}
	addr, _ := e.addr.MarshalBinary() // cannot fail
	return append(e.id[:], addr...)
}

func parseEntry(p []byte) (e entry, err error) {
	if len(p) == 0 {
		return e, nil
	}
	n := len(e.id)
	if len(p) > n {
		err = e.addr.UnmarshalBinary(p[n:])
	}
	if err != nil || !e.addr.IsValid() || e.addr.Port() == 0 {
		return entry{}, fmt.Errorf("%w: address of a rank", ErrProtocol)
	}
	e.id = incarnation(p)
	return e, nil
}

func offerFrame(e entry) []byte {
	b := e.binary()
	return append(newFrame(frameOffer, len(b)), b...)
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

func resultFrame(seq uint32, result []byte) []byte {
	b := newFrame(frameResult, 4+len(result))
	b = binary.LittleEndian.AppendUint32(b, seq)
	return append(b, result...)
}

func decodeResult(p []byte) (seq uint32, result []byte, err error) {
	if len(p) < 4 {
		return 0, nil, fmt.Errorf("%w: result of %d bytes", ErrProtocol, len(p))
	}
	return binary.LittleEndian.Uint32(p), p[4:], nil
}

// joinBlobs encodes the blobs of all ranks: their lengths, then their bytes.
func joinBlobs(blobs [][]byte) []byte {
	n := 4 * len(blobs)
	for _, blob := range blobs {
		n += len(blob)
	}
	b := make([]byte, 0, n)
	for _, blob := range blobs {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(blob)))
	}
	return append(b, slices.Concat(blobs...)...)
}

func splitBlobs(p []byte, size int) (blobs [][]byte, err error) {
	bad := fmt.Errorf("%w: blobs of all ranks", ErrProtocol)
	if len(p) < 4*size {
		return nil, bad
	}
	lens, data := p[:4*size], p[4*size:]
	blobs = make([][]byte, size)
	for i := range blobs {
		n := int64(binary.LittleEndian.Uint32(lens[4*i:]))
		if n > MaxBlob || n > int64(len(data)) {
			return nil, bad
		}
		// Capped, so that appending to one blob cannot write into the next.
		blobs[i], data = data[:n:n], data[n:]
	}
	if len(data) != 0 {
		return nil, bad
	}
	return blobs, nil
}
