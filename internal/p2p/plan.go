// Package p2p holds the point-to-point collectives that today's libraries use,
// as plans: data that says who sends which range of a buffer to whom, after what.
// One executor (Executor) runs all of them over the reliable side of a network. Like
// package protocol it knows no clock, socket or goroutine.
//
// A plan works on one buffer per rank: the receive buffer of a Broadcast or an Allgather; for a
// reduction the rank's input, which turns into the result (but see ownership.go). Reductions happen
// on arrival: the buffer's content op= the piece that came.
//
// # Order of summation
//
// ring: block b is summed along the ring beginning at rank b+1 and ending at b,
// which holds it: x(b) + (x(b-1) + ( ... + x(b+1))). recursive-halving: pairs at
// distance core/2 first, then core/4 and so on; ranks beyond the largest power
// of two are added to their partners before that. In both each block is summed in
// one place, so an Allreduce gives the same bits on all ranks. And it is summed in
// the plan's order, whatever arrives first: a piece that comes before its turn is
// held, so that floats give the same bits in every run.
package p2p

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/allcast/allcast/internal/wire"
)

// Kind is what a plan achieves.
type Kind = wire.CallKind

// Executors.
const (
	Broadcast     = wire.Broadcast
	Allgather     = wire.Allgather
	ReduceScatter = wire.ReduceScatter
	Allreduce     = wire.Allreduce
	Barrier       = wire.Barrier
)

// Send is a range that goes to another rank once the first After receives of
// the plan are complete.
type Send struct {
	Off, Len int64
	To       int32
	After    int32
	Input    bool // of a reduction: nothing was added to the range before
}

// Recv is a range that comes from another rank. The n-th receive from a rank
// matches the n-th send of that rank to us.
type Recv struct {
	Off, Len int64
	From     int32
	Reduce   bool // add it to what is there
	First    bool // of a reduction: nothing was added to the range before
}

// A Plan is what one rank does: its sends in order, its receives in order.
type Plan struct {
	Kind   Kind
	Algo   string
	Rank   int
	Size   int
	Root   int
	Bytes  int64 // of the buffer
	Digest uint64
	Type   uint64 // as in Spec
	Sends  []Send
	Recvs  []Recv

	// Segments is the length of the buffer in segments, rounded down, the same on all ranks; 0: blocks are
	// sent whole. A rank sends at most 2*(Segments+Size) pieces to another.
	Segments int64

	// Partials are, in a reduction, the ranges that are sums when they are sent on, sorted and apart.
	Partials []Partial

	peers   []contact // those it deals with,
	senders int       // of which the first so many send to us
	byRank  []int32   // and these, sorted
}

// Spec says what is wanted. Counts are the blocks of the buffer, one a rank; for
// Broadcast and Allreduce Bytes is its size.
type Spec struct {
	Kind    Kind
	Rank    int
	Size    int
	Root    int
	Bytes   int64
	Counts  []int64
	Radix   int   // of knomial; 0: 4
	Segment int64 // pipelined algorithms send in pieces of this size; 0: whole blocks, or a default for chain and binary
	Align   int64 // pieces begin at multiples of this within a block; 0: 1

	// Type is what else must be the same on all ranks, such as a number for the
	// element type and the operator of a reduction. It is only compared.
	Type uint64
}

// ErrSpec marks a Spec that makes no sense.
var ErrSpec = errors.New("bad collective")

type builder func(b *build)

var algorithms = map[Kind]map[string]builder{
	Broadcast: {
		"binomial": binomial, "knomial": knomial, "binary": binary, "chain": chain, "scatter-allgather": scatterAllgather,
	},
	Allgather: {
		"ring": ringAllgather, "linear": linearAllgather, "recursive-doubling": doublingAllgather, "bruck": bruck,
	},
	ReduceScatter: {"ring": ringReduceScatter, "recursive-halving": halvingReduceScatter},
	Allreduce:     {"ring": ringAllreduce, "recursive-halving": halvingAllreduce},
	Barrier:       {"dissemination": dissemination, "recursive-doubling": doublingBarrier},
}

// Algorithms lists the algorithms for a kind, sorted.
func Algorithms(k Kind) []string {
	var names []string
	for n := range algorithms[k] {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// New makes the plan of one rank.
func New(algo string, s Spec) (*Plan, error) {
	build, ok := algorithms[s.Kind][algo]
	if !ok {
		return nil, fmt.Errorf("%w: unknown algorithm %q for %v: valid are %s", ErrSpec, algo, s.Kind, strings.Join(Algorithms(s.Kind), ", "))
	}
	if algo != "knomial" {
		s.Radix = 0 // nobody looks at it: no reason to call it a mismatch
	}
	if s.Segment == 0 && (algo == "chain" || algo == "binary") {
		s.Segment = defaultSegment // without one they would not be pipelined
	}
	if err := s.complete(); err != nil {
		return nil, err
	}
	b := newBuild(algo, s)
	if s.Size > 1 {
		build(b)
	}
	b.plan.contacts()
	b.plan.ownership()
	return b.plan, nil
}

// maxPieces bounds a plan: segments that cut a buffer into more are a mistake.
const maxPieces = 1 << 24

// complete fills in defaults, clears what the kind does not use, and checks.
func (s *Spec) complete() error {
	if s.Radix == 0 {
		s.Radix = 4
	}
	s.Align = max(s.Align, 1)
	blocks := s.Kind == Allgather || s.Kind == ReduceScatter
	switch {
	case s.Size < 1 || s.Rank < 0 || s.Rank >= s.Size:
		return fmt.Errorf("%w: rank %d of %d", ErrSpec, s.Rank, s.Size)
	case s.Kind == Broadcast && (s.Root < 0 || s.Root >= s.Size):
		return fmt.Errorf("%w: root %d: must be 0 to %d", ErrSpec, s.Root, s.Size-1)
	case s.Radix < 2:
		return fmt.Errorf("%w: radix %d: must be at least 2", ErrSpec, s.Radix)
	case s.Bytes < 0 || s.Segment < 0:
		return fmt.Errorf("%w: sizes must be 0 or more", ErrSpec)
	case blocks && len(s.Counts) != s.Size:
		return fmt.Errorf("%w: %d sizes for %d ranks", ErrSpec, len(s.Counts), s.Size)
	}
	sum, err := sumOf(s.Counts)
	if err != nil {
		return err
	}
	if s.Kind != Broadcast {
		s.Root = 0
	}
	switch {
	case blocks || s.Kind == Barrier:
		s.Bytes = 0
	case s.Bytes > math.MaxInt64-s.Align:
		return fmt.Errorf("%w: %d bytes in units of %d are too many", ErrSpec, s.Bytes, s.Align)
	default:
		sum = s.Bytes
	}
	if s.Segment > 0 && sum/max(s.Segment, s.Align) > maxPieces {
		return fmt.Errorf("%w: segments of %d bytes cut %d bytes into more than %d pieces", ErrSpec, s.Segment, sum, maxPieces)
	}
	return nil
}

// sumOf adds up the sizes of blocks.
func sumOf(counts []int64) (sum int64, err error) {
	for _, n := range counts {
		switch {
		case n < 0:
			return 0, fmt.Errorf("%w: sizes must be 0 or more", ErrSpec)
		case n > math.MaxInt64-sum:
			return 0, fmt.Errorf("%w: the sizes add up to more than %d bytes", ErrSpec, int64(math.MaxInt64))
		}
		sum += n
	}
	return sum, nil
}
