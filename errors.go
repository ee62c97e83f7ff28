package allcast

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/oslimit"
	"github.com/allcast/allcast/internal/wire"
)

// Errors that calls return, for errors.Is.
var (
	// ErrRankLost means that a rank died or was silent for longer than Options.Timeout.
	ErrRankLost = errors.New("a rank was lost")
	// ErrAborted means that a rank called Abort, or that the context of one of its blocking calls ended.
	ErrAborted = errors.New("aborted")
	// ErrDeadline means that an operation exceeded Options.Deadline or the timeout of the call (WithTimeout).
	ErrDeadline = errors.New("deadline passed")
	// ErrMismatch means that ranks called different operations, or the same operation with a different
	// root, size, type or algorithm.
	ErrMismatch = errors.New("ranks made different calls")
	// ErrProtocol means that a rank sent a message that no correct rank sends.
	ErrProtocol = errors.New("a rank violated the protocol")
	// ErrCorrupt means that ranks ended with different bytes (Options.Integrity), because of faulty memory
	// on one of them.
	ErrCorrupt = errors.New("ranks ended with different bytes")
	// ErrClosed means that the communicator or the job was closed.
	ErrClosed = errors.New("the communicator is closed")
	// ErrInvalid means that an argument is invalid. The call has started nothing.
	ErrInvalid = errors.New("invalid argument")
	// ErrNoMulticast means that a call requires multicast, which does not work.
	ErrNoMulticast = errors.New("multicast does not work here")
	// ErrNoAggregation means that a call requires aggregators (Options.Aggregators), which it cannot use.
	ErrNoAggregation = errors.New("no aggregators to use")
	// ErrInUse means that an unfinished operation of this process uses the memory to be freed.
	ErrInUse = errors.New("an unfinished operation uses the memory")
	// ErrNotAlloced means that the memory to be freed is not from Alloc, or was freed before.
	ErrNotAlloced = errors.New("the memory is not from Alloc")
)

// A RankError is the error of a call that could not complete. It matches one of ErrRankLost, ErrAborted,
// ErrDeadline, ErrMismatch, ErrProtocol and ErrCorrupt, or ErrClosed if another rank has closed the
// communicator. The error of a blocking call whose context ended also matches the error of the context.
//
// Ranks are those of the communicator of the call. Messages add the world rank where it differs.
type RankError struct {
	Rank      int    // failed rank, -1 if no single rank of the communicator failed
	WorldRank int    // world rank of the failed rank, -1 if no single rank failed
	Op        string // operation
	Phase     string // phase of the operation on this rank
	Missing   string // data or ranks that this rank was waiting for
	Calls     string // ErrMismatch: calls of the ranks, as far as known; ErrCorrupt: description of Differ
	Differ    []int  // ErrCorrupt: ranks whose bytes differ

	causes     []error
	reason     string
	culprit    string // description of the failed rank
	localCause string // reason why this rank gave up, empty if it did not
}

func (e *RankError) Error() string {
	culprit := e.culprit
	if e.Calls != "" {
		culprit += " (" + e.Calls + ")"
	}
	return fmt.Sprintf("allcast: %s failed in the %s phase: %s: %s%s; missing here: %s",
		e.Op, e.Phase, e.reason, culprit, e.localCause, e.Missing)
}

// Unwrap returns the kind of failure, and the error of the context if that has ended the call.
func (e *RankError) Unwrap() []error { return e.causes }

// withCause returns a copy of the error that adds the reason why this rank gave up.
func (e *RankError) withCause(cause error) *RankError {
	c := *e
	c.causes = append(slices.Clone(e.causes), cause)
	c.localCause = "; " + cause.Error() + " here"
	return &c
}

// ofCall converts an error of a communicator that a call tried to create into an error of that call. members are
// those of the communicator of the call, which is intact.
func (e *RankError) ofCall(op string, members []int) *RankError {
	c := *e
	c.Op = op
	c.Rank, c.Missing = slices.Index(members, e.WorldRank), "in the new communicator: "+e.Missing
	if e.WorldRank >= 0 {
		c.culprit = rankName(e.WorldRank, members)
	}
	return &c
}

// A NoMulticastError is the error of a call that requires multicast, which does not work. It matches
// ErrNoMulticast.
type NoMulticastError struct{ Reason string }

func (e *NoMulticastError) Error() string {
	return fmt.Sprintf("allcast: multicast does not work here: %s; run \"allcast doctor\" for advice, "+
		"or use algorithm auto, which works without multicast", e.Reason)
}

// Unwrap returns ErrNoMulticast.
func (e *NoMulticastError) Unwrap() error { return ErrNoMulticast }

// A NoAggregationError is the error of a call that requires aggregators, which it cannot use. It matches
// ErrNoAggregation.
type NoAggregationError struct{ Reason string }

func (e *NoAggregationError) Error() string {
	return fmt.Sprintf("allcast: algorithm inc has no aggregators to use: %s; algorithm auto works without them", e.Reason)
}

// Unwrap returns ErrNoAggregation.
func (e *NoAggregationError) Unwrap() error { return ErrNoAggregation }

var reasonErrors = map[node.Reason]error{
	node.Lost: ErrRankLost, node.Aborted: ErrAborted, node.Deadline: ErrDeadline, node.Mismatch: ErrMismatch,
	node.Protocol: ErrProtocol, node.Left: ErrClosed, node.Corrupt: ErrCorrupt, node.Cancelled: ErrAborted,
}

// exportError converts an error of the engine into one of this package. members are the world ranks of the
// communicator of the call.
func exportError(err error, members []int) error {
	if err == nil {
		return nil
	}
	var e *node.Error
	switch {
	case errors.As(err, &e):
		if mail := exportMailError(e, members); mail != nil {
			return mail
		}
		r := exportRankError(e, members)
		if full, ok := errors.AsType[*oslimit.Error](err); ok {
			r.causes, r.localCause = append(r.causes, full), ": "+full.Error()
		}
		return r
	case errors.Is(err, engine.ErrClosed), errors.Is(err, node.ErrComm), errors.Is(err, fabric.ErrClosed):
		return fmt.Errorf("allcast: %w", ErrClosed)
	case errors.Is(err, engine.ErrCall):
		return invalid("%s", strings.TrimPrefix(err.Error(), engine.ErrCall.Error()+": "))
	case errors.Is(err, node.ErrMail):
		return invalid("%s", strings.TrimPrefix(err.Error(), node.ErrMail.Error()+": "))
	case errors.Is(err, engine.ErrNoMulticast):
		return fmt.Errorf("allcast: %w", ErrNoMulticast)
	case errors.Is(err, engine.ErrNoAggregation):
		return fmt.Errorf("allcast: %w", ErrNoAggregation)
	}
	return fmt.Errorf("allcast: %w", err)
}

func exportRankError(e *node.Error, members []int) *RankError {
	cause, ok := reasonErrors[e.Reason]
	if !ok {
		cause = ErrProtocol // only a faulty peer sends an unknown reason
	}
	r := &RankError{
		Rank: slices.Index(members, e.Culprit), WorldRank: e.Culprit, Op: e.Op.String(), Phase: e.Phase.String(),
		Missing: e.Missing, causes: []error{cause}, reason: e.Reason.String(), culprit: "no single rank",
	}
	name := func(world int) string { return rankName(world, members) }
	if e.Culprit >= 0 {
		r.culprit = name(e.Culprit)
	}
	if e.Pair == nil {
		return r
	}
	a, b := int(e.Pair.Ranks[0]), int(e.Pair.Ranks[1])
	if e.Reason == node.Corrupt {
		r.Differ = []int{slices.Index(members, a), slices.Index(members, b)}
		r.Calls = fmt.Sprintf("%s and %s ended with different bytes", name(a), name(b))
		return r
	}
	r.Calls = describeCalls(name(a), name(b), e.Pair)
	return r
}

// describeCalls describes the calls of two ranks.
func describeCalls(a, b string, p *wire.CallPair) string {
	s := fmt.Sprintf("%s called %s, %s called %s",
		a, p.Calls[0].Describe(elementTypeOf), b, p.Calls[1].Describe(elementTypeOf))
	if p.Calls[0] == p.Calls[1] {
		s += ", with different counts or options"
	}
	return s
}

// rankName names a world rank in messages: by its rank in the communicator, and by its world rank where that
// differs.
func rankName(world int, members []int) string {
	switch rank := slices.Index(members, world); rank {
	case world:
		return fmt.Sprintf("rank %d", rank)
	case -1:
		return fmt.Sprintf("world rank %d", world)
	default:
		return fmt.Sprintf("rank %d (world rank %d)", rank, world)
	}
}

// elementTypeOf describes the operator and element type of a reduction, as package engine encodes them.
func elementTypeOf(t uint16) string { return fmt.Sprintf("%v of %v", ReduceOp(t), DataType(t>>8)) }

// during returns an error that says in which call another error of this package occurred. Its message has one prefix.
func during(call string, err error) error { return &duringError{call, err} }

type duringError struct {
	call string
	err  error
}

func (e *duringError) Error() string {
	return prefix + e.call + ": " + strings.TrimPrefix(e.err.Error(), prefix)
}

func (e *duringError) Unwrap() error { return e.err }

// prefix begins all messages of this package.
const prefix = "allcast: "

func invalid(format string, args ...any) error {
	return fmt.Errorf("allcast: %w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}
