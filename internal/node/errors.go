package node

import (
	"errors"
	"fmt"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Reason is the reason why a communicator broke.
type Reason uint8

// Reasons.
const (
	Lost      Reason = 1 + iota // a rank was silent for too long, or its connection closed
	Aborted                     // a user aborted the communicator
	Deadline                    // a call exceeded its deadline
	Mismatch                    // two ranks made different calls
	Protocol                    // a rank violated the protocol
	Left                        // a rank has closed the communicator
	Corrupt                     // two ranks ended with different bytes
	Cancelled                   // the caller of an operation gave up
	Withdrawn                   // only this call: its caller gave up before it had a match
	Truncated                   // only this call: the message is longer than the buffer
	Unmatched                   // only this call: it had no match at its deadline
)

var reasonNames = map[Reason]string{
	Lost: "lost", Aborted: "aborted", Deadline: "deadline", Mismatch: "mismatched calls", Protocol: "protocol violation",
	Left: "closed the communicator", Corrupt: "corrupt data", Cancelled: "cancelled",
	Withdrawn: "withdrawn", Truncated: "message too long", Unmatched: "deadline without a match",
}

// OneCall reports whether only one call has failed, and its communicator is intact.
func (r Reason) OneCall() bool { return r == Withdrawn || r == Truncated || r == Unmatched }

func (r Reason) String() string {
	if s, ok := reasonNames[r]; ok {
		return s
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// NoRank is the culprit if no rank could be identified.
const NoRank = -1

// An Error describes the failure of a call.
type Error struct {
	Comm    uint32
	Seq     uint64
	Op      wire.CallKind
	Phase   step.Phase // phase of the call on this rank
	Culprit int        // world rank that failed, or NoRank
	Reason  Reason
	Missing string         // description of what had not arrived
	Pair    *wire.CallPair // Mismatch: the two calls, as far as known; Corrupt: the ranks whose bytes differ
}

func (e *Error) Error() string {
	culprit := fmt.Sprintf("rank %d", e.Culprit)
	if e.Culprit == NoRank {
		culprit = "no single rank"
	}
	if calls := e.Calls(nil); calls != "" {
		culprit += " (" + calls + ")"
	}
	return fmt.Sprintf("%v %d on communicator %d failed in the %v phase: %v: %s; missing: %s",
		e.Op, e.Seq, e.Comm, e.Phase, e.Reason, culprit, e.Missing)
}

// Calls describes the calls of a Mismatch or the ranks of a Corrupt, if known. typeName names element
// types.
func (e *Error) Calls(typeName func(uint16) string) string {
	if e.Pair == nil {
		return ""
	}
	r, c := e.Pair.Ranks, e.Pair.Calls
	if e.Reason == Corrupt {
		return fmt.Sprintf("ranks %d and %d ended with different bytes", r[0], r[1])
	}
	s := fmt.Sprintf("rank %d called %s, rank %d called %s",
		r[0], c[0].Describe(typeName), r[1], c[1].Describe(typeName))
	if c[0] == c[1] {
		s += ", with different counts or options"
	}
	return s
}

// Usage errors of Node's methods.
var (
	ErrComm = errors.New("no such communicator")
	ErrSize = errors.New("the collective is for another number of ranks")
)
