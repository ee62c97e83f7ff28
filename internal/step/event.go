package step

import "github.com/allcast/allcast/internal/wire"

// EventKind says what happened.
type EventKind uint8

// Kinds of events, with the fields that each kind uses.
const (
	EvStart   EventKind = iota // Offloaded: receives are posted; enter the barrier
	EvMsg                      // From, Msg: a reliable message arrived
	EvSent                     // N: that many multicast chunks left the send buffer, in order
	EvRead                     // Stream, Ranges: a read ended and put these chunks in place
	EvTimer                    // the requested time has come
	EvDigest                   // Digest: answers ActDigest
	EvFetched                  // Ranges: answers ActFetch
)

// An Event tells a collective on one rank what happened. Chunks that arrive by datagram do not come
// as events: see mcast.Collective.Placed.
type Event struct {
	Kind      EventKind
	From      int
	Msg       *wire.Msg
	Stream    int
	N         uint32
	Ranges    []wire.Range
	Digest    uint64
	Offloaded bool // whether the kernel receives for the process
}

// ActionKind says what the driver must do.
type ActionKind uint8

// Kinds of actions, with the fields that each kind uses.
const (
	ActSend      ActionKind = iota // To, Msg: send on the reliable path
	ActMulticast                   // Stream, PSN, N: multicast these chunks of our block, in order
	ActRead                        // To, Stream, Ranges (one owner each): claim and read these chunks, answer with EvRead
	ActComplete                    // return the buffers to the user
	ActClosed                      // forget the collective: it asks for nothing more
	ActMismatch                    // To, Msg: rank To made another call, Msg.Call
	ActReduce                      // PSN, N, Try, Offer: send our contributions of these places, answer with EvSent
	ActDigest                      // digest what this round received (mcast.Geometry.Spans), answer with EvDigest
	ActCorrupt                     // To: rank To also has everything, but its bytes differ from ours
	ActPut                         // To, PSN, Off, Len, Input, Parts: send this range reliably, as the PSN-th to To
	ActFetch                       // PSN, N: make these chunks of our block from all ranks' inputs, answer with EvFetched
)

// An Action is one thing that the driver must do. The driver carries out all actions of a step
// before the next step. It may keep the slices of Msg.
type Action struct {
	Kind   ActionKind
	To     int
	Stream int
	PSN, N uint32
	Try    uint8 // of a request for contributions; 0 if they were not sent before
	Offer  bool  // whether to offer the contributions only
	Off    int64
	Len    int64
	Ranges []wire.Range
	Input  bool        // whether the range is raw input of a reduction
	Parts  []wire.Span // if not nil, the piece consists of these ranges of Len bytes in all
	Msg    wire.Msg
}
