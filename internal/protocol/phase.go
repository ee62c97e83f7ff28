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

// Flow is a flow-control policy.
type Flow uint8

// Policies.
const (
	// FlowNone sends as fast as the link allows: for lossless fabrics, as in the paper.
	FlowNone Flow = iota
	// FlowCredit sends no more than every receiver has room for.
	FlowCredit
)

func (f Flow) String() string {
	if f == FlowCredit {
		return "credit"
	}
	return "none"
}

// ParseFlow is the inverse of String.
func ParseFlow(s string) (Flow, error) {
	switch s {
	case "none":
		return FlowNone, nil
	case "credit":
		return FlowCredit, nil
	}
	return 0, fmt.Errorf("unknown flow control %q: valid are none, credit", s)
}
