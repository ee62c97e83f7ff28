package allcast

import (
	"errors"
	"fmt"
	"slices"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/wire"
)

// What an error of a call can be, for errors.Is.
var (
	// ErrRankLost says that a rank died, or was silent for longer than Options.Timeout.
	ErrRankLost = errors.New("a rank was lost")
	// ErrAborted says that a rank called Abort, or that the context of a blocking call ended there.
	ErrAborted = errors.New("aborted")
	// ErrDeadline says that Options.Deadline passed.
	ErrDeadline = errors.New("deadline passed")
	// ErrMismatch says that ranks called different operations, or with another root, size, type or
	// algorithm.
	ErrMismatch = errors.New("ranks made different calls")
	// ErrProtocol says that a rank sent what no correct rank sends.
	ErrProtocol = errors.New("a rank sent what no correct peer sends")
	// ErrCorrupt says that ranks ended with different bytes (Options.Integrity): some rank's memory is
	// at fault.
	ErrCorrupt = errors.New("ranks ended with different bytes")
	// ErrClosed says that the communicator, or the job, was closed.
	ErrClosed = errors.New("the communicator is closed")
	// ErrInvalid says that an argument makes no sense.
	ErrInvalid = errors.New("invalid argument")
	// ErrNoMulticast says that multicast was asked for and does not work.
	ErrNoMulticast = errors.New("multicast does not work here")
	// ErrInUse is what Free returns while an operation of this process that has not ended uses the
	// memory.
	ErrInUse = errors.New("an operation that has not ended uses it")
	// ErrNotAlloced is what Free returns for memory that is not from Alloc, or free already.
	ErrNotAlloced = errors.New("not from Alloc")
)

// A RankError is how a call ended that could not complete. It matches one of
// ErrRankLost, ErrAborted, ErrDeadline, ErrMismatch, ErrProtocol and ErrCorrupt, or ErrClosed if a
// rank has closed the communicator that another one uses. The error of a blocking call whose context
// ended matches the context's error as well.
//
// Ranks are those of the communicator that the call was made on. Messages add the rank in the
// communicator that Join returned, the world, where it differs.
type RankError struct {
	Rank      int    // the rank that failed, -1 if no single one of the communicator did
	WorldRank int    // its rank in the world, -1 if no single rank failed
	Op        string // what was called
	Phase     string // where it was on this rank
	Missing   string // what had not arrived here
	Calls     string // ErrMismatch: which rank called what, as far as it is known; ErrCorrupt: which ranks differ
	Differ    []int  // ErrCorrupt: the ranks that differ
	causes    []error
	reason    string
	culprit   string // in words
	here      string // why this rank gave up, if it did
}

func (e *RankError) Error() string {
	who := e.culprit
	if e.Calls != "" {
		who += " (" + e.Calls + ")"
	}
	return fmt.Sprintf("allcast: %s failed in the %s phase: %s: %s%s; missing here: %s",
		e.Op, e.Phase, e.reason, who, e.here, e.Missing)
}

// Unwrap returns what kind of failure it was, and the context's error if that is why.
func (e *RankError) Unwrap() []error { return e.causes }

// because returns the error with what made the caller give up here.
func (e *RankError) because(cause error) *RankError {
	c := *e
	c.causes = append(slices.Clone(e.causes), cause)
	c.here = "; " + cause.Error() + " here"
	return &c
}

// of returns the error as a call on another communicator reports it. What is missing was missing on the
// one that the call was to make.
func (e *RankError) of(members []int) *RankError {
	c := *e
	c.Rank, c.Missing = slices.Index(members, e.WorldRank), "in the new communicator: "+e.Missing
	if e.WorldRank >= 0 {
		c.culprit = rankName(e.WorldRank, members)
	}
	return &c
}

// A NoMulticastError says why multicast was asked for and cannot be had. It matches
// ErrNoMulticast.
type NoMulticastError struct{ Reason string }

func (e *NoMulticastError) Error() string {
	return fmt.Sprintf("allcast: multicast does not work here: %s; \"allcast doctor\" tells what to do, "+
		"and algorithm auto does without", e.Reason)
}

// Unwrap returns ErrNoMulticast.
func (e *NoMulticastError) Unwrap() error { return ErrNoMulticast }

var causes = map[node.Reason]error{
	node.Lost: ErrRankLost, node.Aborted: ErrAborted, node.Deadline: ErrDeadline, node.Mismatch: ErrMismatch,
	node.Protocol: ErrProtocol, node.Left: ErrClosed, node.Corrupt: ErrCorrupt, node.Cancelled: ErrAborted,
}

// exportError turns an error of the engine into one of this package. members are the world ranks of
// the communicator that it is of.
func exportError(err error, members []int) error {
	if err == nil {
		return nil
	}
	var e *node.Error
	switch {
	case errors.As(err, &e):
		return exportRankError(e, members)
	case errors.Is(err, engine.ErrClosed), errors.Is(err, node.ErrComm), errors.Is(err, fabric.ErrClosed):
		return fmt.Errorf("allcast: %w", ErrClosed)
	case errors.Is(err, engine.ErrCall):
		return fmt.Errorf("allcast: %w: %w", ErrInvalid, err)
	case errors.Is(err, engine.ErrNoMulticast):
		return fmt.Errorf("allcast: %w", ErrNoMulticast)
	}
	return fmt.Errorf("allcast: %w", err)
}

func exportRankError(e *node.Error, members []int) *RankError {
	cause, ok := causes[e.Reason]
	if !ok {
		cause = ErrProtocol // only a peer can have made it up
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

// describeCalls says which rank called what.
func describeCalls(a, b string, p *wire.CallPair) string {
	s := fmt.Sprintf("%s called %s, %s called %s",
		a, p.Calls[0].Describe(elementTypeOf), b, p.Calls[1].Describe(elementTypeOf))
	if p.Calls[0] == p.Calls[1] {
		s += ", with other counts or options"
	}
	return s
}

// rankName is what messages call a rank of the world: by its number in the communicator, and in the
// world where that differs.
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

// elementTypeOf puts the element type and operator of a reduction in words; see engine's plans.
func elementTypeOf(t uint16) string { return fmt.Sprintf("%v of %v", ReduceOp(t), DataType(t>>8)) }

func invalid(format string, args ...any) error {
	return fmt.Errorf("allcast: %w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}
