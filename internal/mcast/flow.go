package mcast

import "fmt"

// Flow is a flow-control policy.
type Flow uint8

// Policies.
const (
	// FlowNone sends as fast as the link allows. It suits lossless fabrics, as in the paper.
	FlowNone Flow = iota
	// FlowCredit limits senders to the room of the slowest receiver.
	FlowCredit
)

func (f Flow) String() string {
	if f == FlowCredit {
		return "credit"
	}
	return "none"
}

// ParseFlow parses the result of String.
func ParseFlow(s string) (Flow, error) {
	switch s {
	case "none":
		return FlowNone, nil
	case "credit":
		return FlowCredit, nil
	}
	return 0, fmt.Errorf("unknown flow control %q: valid are none, credit", s)
}
