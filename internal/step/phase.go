package step

import "fmt"

// Phase is how far a collective has come on this rank.
type Phase uint8

// Phases in order. Barrier, Multicast, Fetch and Handshake are the paper's.
const (
	Queued Phase = iota // waits for its slot
	Barrier
	Multicast
	Fetch
	Handshake
	Transfer  // the only phase of a point-to-point plan (package p2p); aggregators make sums (package inc)
	Lingering // has returned its buffers and only relays for other ranks
	Closed
	Failed // final
)

var phaseNames = [...]string{
	"queued", "barrier", "multicast", "fetch", "handshake", "transfer", "lingering", "closed", "failed",
}

func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}
