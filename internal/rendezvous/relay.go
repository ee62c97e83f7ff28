package rendezvous

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/allcast/allcast/internal/units"
)

// relayLimits are the frames about or of a rank that the ranks above it pass on to rank 0.
var relayLimits = limits{
	frameArrival: 2 + maxString + helloLimits[frameHello],
	frameRefused: maxString,
	frameLost:    maxText,
	frameLeave:   1,
	frameBlob:    4 + MaxBlob,
}

// relayFrame wraps a frame of a rank for rank 0.
func relayFrame(rank int, f frame) []byte {
	b := newFrame(frameRelay, 4+frameHeader+len(f.payload))
	b = binary.LittleEndian.AppendUint32(b, uint32(rank))
	return append(b, f.bytes()...)
}

func decodeRelay(p []byte) (rank int, f frame, err error) {
	bad := fmt.Errorf("%w: relayed frame", ErrProtocol)
	if len(p) < 4 {
		return 0, frame{}, bad
	}
	n := binary.LittleEndian.Uint32(p)
	f, err = readFrame(bytes.NewReader(p[4:]), relayLimits)
	if err != nil || n > math.MaxInt32 || len(p) != 4+frameHeader+len(f.payload) {
		return 0, frame{}, bad
	}
	return int(n), f, nil
}

// textFrame is a frame of type frameRefused or frameLost.
func textFrame(t frameType, text string) frame {
	return frame{t, []byte(text[:min(len(text), relayLimits[t])])}
}

// frame describes an arrival to rank 0.
func (a arrival) frame() frame {
	addr := a.addr[:min(len(a.addr), maxString)]
	b := []byte{0, byte(len(addr))}
	if a.secure {
		b[0] = 1
	}
	b = append(b, addr...)
	return frame{frameArrival, append(b, a.hello.frame()[frameHeader:]...)}
}

func decodeArrival(p []byte) (a arrival, err error) {
	if len(p) < 2 || p[0] > 1 || len(p) < 2+int(p[1]) {
		return arrival{}, fmt.Errorf("%w: arrival", ErrProtocol)
	}
	n := 2 + int(p[1])
	a.secure, a.addr = p[0] == 1, units.Printable(string(p[2:n]))
	a.hello, err = decodeHello(p[n:])
	return a, err
}
