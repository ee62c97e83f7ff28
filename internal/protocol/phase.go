package protocol

import "fmt"

// Phase is where an Op is. The first four are the paper's.
type Phase uint8

// Phases in order. A queued operation waits for its slot; a lingering one has
// given its buffers back and only relays for others; Failed is never left.
const (
	Queued Phase = iota
	Barrier
	Multicast
	Fetch
	Handshake
	Transfer // of a point-to-point plan (package p2p)
	Lingering
	Closed
	Failed
)

var phaseNames = [...]string{"queued", "barrier", "multicast", "fetch", "handshake", "transfer", "lingering", "closed", "failed"}

func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}
