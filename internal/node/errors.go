package node

import (
	"errors"
	"fmt"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Reason is why a communicator broke.
type Reason uint8

// Reasons.
const (
	Lost      Reason = 1 + iota // a rank was silent for too long, or its connection closed
	Aborted                     // a rank was told to abort
	Deadline                    // a call took longer than it was given
	Mismatch                    // two ranks called different things
	Protocol                    // a rank sent what no correct peer sends
	Left                        // a rank has closed the communicator
	Corrupt                     // two ranks ended with different bytes
	Cancelled                   // the caller of an operation has given up
)

var reasonNames = map[Reason]string{
	Lost: "lost", Aborted: "aborted", Deadline: "deadline", Mismatch: "mismatched calls", Protocol: "protocol violation",
	Left: "closed the communicator", Corrupt: "corrupt data", Cancelled: "cancelled",
}

func (r Reason) String() string {
	if s, ok := reasonNames[r]; ok {
		return s
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// NoRank is the culprit when none could be found.
const NoRank = -1

// An Error is how a call ended that did not complete.
type Error struct {
	Comm    uint32
	Seq     uint64
	Op      wire.CallKind
	Phase   step.Phase // where the call was on this rank
	Culprit int        // world rank that failed, or NoRank
	Reason  Reason
	Missing string         // what had not arrived
	Pair    *wire.CallPair // Mismatch: the two calls, as far as they are known. Corrupt: whose bytes differ
}

func (e *Error) Error() string {
	who := fmt.Sprintf("rank %d", e.Culprit)
	if e.Culprit == NoRank {
		who = "no single rank"
	}
	if calls := e.Calls(nil); calls != "" {
		who += " (" + calls + ")"
	}
	return fmt.Sprintf("%v %d on communicator %d failed in the %v phase: %v: %s; missing: %s",
		e.Op, e.Seq, e.Comm, e.Phase, e.Reason, who, e.Missing)
}

// Calls tells who called what, for people, if it is known; typed puts an element type in
// words.
func (e *Error) Calls(typed func(uint16) string) string {
	if e.Pair == nil {
		return ""
	}
	r, c := e.Pair.Ranks, e.Pair.Calls
	if e.Reason == Corrupt {
		return fmt.Sprintf("ranks %d and %d ended with different bytes", r[0], r[1])
	}
	s := fmt.Sprintf("rank %d called %s, rank %d called %s", r[0], c[0].Describe(typed), r[1], c[1].Describe(typed))
	if c[0] == c[1] {
		s += ", with other counts or options"
	}
	return s
}

// Usage errors of Node's methods.
var (
	ErrComm = errors.New("no such communicator")
	ErrSize = errors.New("the collective is for another number of ranks")
)
