package allcast

import (
	"errors"
	"fmt"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/node"
)

// What an error of a call can be, for errors.Is.
var (
	ErrRankLost    = errors.New("a rank was lost")                        // it died, or was silent for too long
	ErrAborted     = errors.New("aborted")                                // a rank called Abort
	ErrDeadline    = errors.New("deadline passed")                        // Options.Deadline
	ErrMismatch    = errors.New("ranks made different calls")             // another operation, root, size, type or algorithm
	ErrProtocol    = errors.New("a rank sent what no correct peer sends") //
	ErrCorrupt     = errors.New("ranks ended with different bytes")       // Options.Integrity: somebody's memory is at fault
	ErrClosed      = errors.New("the communicator is closed")
	ErrInvalid     = errors.New("invalid argument")
	ErrNoMulticast = errors.New("multicast does not work here")
)

// A RankError is how a call ended that could not complete. It matches one of
// ErrRankLost, ErrAborted, ErrDeadline, ErrMismatch, ErrProtocol and ErrCorrupt, or ErrClosed if a
// rank has closed the communicator that another one uses.
type RankError struct {
	Rank    int    // the world rank that failed, -1 if no single one did
	Op      string // what was called
	Phase   string // where it was on this rank
	Missing string // what had not arrived here
	Calls   string // ErrMismatch: who called what, as far as it is known; ErrCorrupt: which ranks differ
	Differ  []int  // ErrCorrupt: the world ranks that differ
	cause   error
	reason  string
}

func (e *RankError) Error() string {
	who := fmt.Sprintf("rank %d", e.Rank)
	if e.Rank < 0 {
		who = "no single rank"
	}
	if e.Calls != "" {
		who += " (" + e.Calls + ")"
	}
	return fmt.Sprintf("allcast: %s failed in the %s phase: %s: %s; missing here: %s", e.Op, e.Phase, e.reason, who, e.Missing)
}

// Unwrap returns what kind of failure it was.
func (e *RankError) Unwrap() error { return e.cause }

// A NoMulticastError says why multicast was asked for and cannot be had. It matches
// ErrNoMulticast.
type NoMulticastError struct{ Reason string }

func (e *NoMulticastError) Error() string {
	return fmt.Sprintf("allcast: multicast does not work here: %s; \"allcast doctor\" tells what to do, and algorithm auto does without", e.Reason)
}

// Unwrap returns ErrNoMulticast.
func (e *NoMulticastError) Unwrap() error { return ErrNoMulticast }

var causes = map[node.Reason]error{
	node.Lost: ErrRankLost, node.Aborted: ErrAborted, node.Deadline: ErrDeadline, node.Mismatch: ErrMismatch, node.Protocol: ErrProtocol,
	node.Left: ErrClosed, node.Corrupt: ErrCorrupt,
}

// public turns an error of the engine into one of this package.
func public(err error) error {
	if err == nil {
		return nil
	}
	var e *node.Error
	switch {
	case errors.As(err, &e):
		cause, ok := causes[e.Reason]
		if !ok {
			cause = ErrProtocol // only a peer can have made it up
		}
		var differ []int
		if e.Reason == node.Corrupt && e.Pair != nil {
			differ = []int{int(e.Pair.Ranks[0]), int(e.Pair.Ranks[1])}
		}
		return &RankError{
			Differ: differ,
			Rank:   e.Culprit, Op: e.Op.String(), Phase: e.Phase.String(), Missing: e.Missing, Calls: e.Calls(typed), cause: cause, reason: e.Reason.String(),
		}
	case errors.Is(err, engine.ErrClosed), errors.Is(err, node.ErrComm):
		return fmt.Errorf("allcast: %w", ErrClosed)
	case errors.Is(err, engine.ErrCall):
		return fmt.Errorf("allcast: %w: %w", ErrInvalid, err)
	case errors.Is(err, engine.ErrNoMulticast):
		return fmt.Errorf("allcast: %w", ErrNoMulticast)
	}
	return fmt.Errorf("allcast: %w", err)
}

// typed puts the element type and operator of a reduction in words; see engine's plans.
func typed(t uint16) string { return fmt.Sprintf("%v of %v", ReduceOp(t), DataType(t>>8)) }

func invalid(format string, args ...any) error {
	return fmt.Errorf("allcast: %w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}
