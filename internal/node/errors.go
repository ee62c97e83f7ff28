package node

import (
	"errors"
	"fmt"

	"github.com/allcast/allcast/internal/protocol"
)

// Reason is why a communicator broke.
type Reason uint8

// Reasons.
const (
	Lost     Reason = 1 + iota // a rank was silent for too long, or its connection closed
	Aborted                    // a rank was told to abort
	Deadline                   // a call took longer than it was given
	Mismatch                   // two ranks called different things
	Protocol                   // a rank sent what no correct peer sends
)

var reasonNames = map[Reason]string{
	Lost: "lost", Aborted: "aborted", Deadline: "deadline", Mismatch: "mismatched calls", Protocol: "protocol violation",
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
	Op      protocol.Kind
	Phase   protocol.Phase // where the call was on this rank
	Culprit int            // world rank that failed, or NoRank
	Reason  Reason
	Missing string // what had not arrived
}

func (e *Error) Error() string {
	who := fmt.Sprintf("rank %d", e.Culprit)
	if e.Culprit == NoRank {
		who = "no single rank"
	}
	return fmt.Sprintf("%v %d on communicator %d failed in the %v phase: %v: %s; missing: %s",
		e.Op, e.Seq, e.Comm, e.Phase, e.Reason, who, e.Missing)
}

// Usage errors of Node's methods.
var (
	ErrComm = errors.New("no such communicator")
	ErrSize = errors.New("the collective is for another number of ranks")
)
