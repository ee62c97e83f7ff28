package fabric

import "github.com/allcast/allcast/internal/inc"

// Aggregators are this rank's way to the aggregators. An aggregate.Port is one. Like any network, they may lose,
// duplicate and reorder datagrams.
type Aggregators interface {
	// Token returns the token of an operation.
	Token(comm, number uint32) uint64
	// Send sends contributions or offers to this rank's aggregator and fills in their session and child. It copies the
	// payloads, which are equally long, except for the last one. It may block for a moment.
	Send(headers []inc.Header, payloads [][]byte) error
	// Receive calls f for every sum and every Want until Close. f may change the payload, but not keep it. Receive calls
	// idle after some calls of f, before it waits for datagrams.
	Receive(f func(h *inc.Header, payload []byte), idle func()) error
	// Poll handles datagrams that wait, as Receive does, without blocking. It reports whether there were some.
	Poll() bool
	Close() error
}
