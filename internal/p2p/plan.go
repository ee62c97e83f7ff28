// Package p2p holds the point-to-point collectives of common libraries as plans. A plan is data: which
// rank sends which range of a buffer to which rank, and after which receives. One [Executor] runs all
// plans over the reliable side of a network. Like package mcast it uses no clock, socket or
// goroutine.
//
// A plan works on one buffer per rank. For a Broadcast or an Allgather it is the receive buffer. For a
// reduction it is the rank's input, which turns into the result (but see ownership.go). A rank
// reduces on arrival: buffer content op= arriving piece. For Gather, Scatter and Alltoall it is the
// send buffer, followed by the receive buffer. Scratch memory, where a plan needs any, comes last
// ([Plan.Input], [Plan.Output], [Plan.Scratch]).
//
// # Order of summation
//
// ring: block b is summed along the ring from rank b+1 to rank b, which keeps it:
// x(b) + (x(b-1) + ( ... + x(b+1))). recursive-halving: pairs at distance core/2 first, then core/4,
// and so on; ranks beyond the largest power of two are added to their partners before that. pat: block b
// is summed up a binomial tree with rank b as its root. The rank at distance v from it adds to its own
// value the sums of the ranks at distance v+1, v+2, v+4 and so on, in this order, as long as they are
// below the lowest bit of v. Reduce with binomial uses the same tree for the whole buffer and the root
// of the call, and Reduce with chain x(root) + (x(root+1) + ( ... + x(root-1))). Reduce with ring sums
// blocks as above, and the root collects them.
//
// recursive-doubling: pairs at distance 1 first, then 2, and so on; ranks beyond the largest power of
// two are added to their partners before that. Both ranks of a pair add the same two sums, and the
// operators are commutative. The other algorithms sum each block in one place. An Allreduce therefore
// gives the same bits on all ranks. Ranks sum in the plan's order, whatever arrives first: a piece that
// arrives before its turn is held. Floats therefore give the same bits in every run.
//
// # Reductions
//
// The executor adds the pieces of a reduction in the plan's order, whatever arrives first, so floats
// give the same bits in every run. A reduction neither changes nor copies its input, unless it works
// in place. The plan decides which ranges a rank sends from its input, which receives are the first
// sum of a range, and which sums only pass through (ownership.go). A first sum is the received piece
// plus the input. Sums for the caller are made in the receive buffer, all others in scratch memory.
//
// # Small calls
//
// Calls of at most 256 KiB are eager: data leaves with the greeting in one write, and a receiver that
// makes its call late finds the data waiting. A rank reports its progress to its senders, at least
// every fourth call. A sender runs at most eight calls ahead of these reports, which bounds the
// memory of early data. Ranks that made different calls learn of it from the greeting that comes
// with the data, or after 20 ms if both only wait.
package p2p

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/allcast/allcast/internal/wire"
)

// Kind is the kind of collective that a plan implements.
type Kind = wire.CallKind

// Kinds.
const (
	Broadcast     = wire.Broadcast
	Allgather     = wire.Allgather
	ReduceScatter = wire.ReduceScatter
	Allreduce     = wire.Allreduce
	Barrier       = wire.Barrier
	Gather        = wire.Gather
	Gatherv       = wire.Gatherv
	Scatter       = wire.Scatter
	Scatterv      = wire.Scatterv
	Reduce        = wire.Reduce
	Alltoall      = wire.Alltoall
	Alltoallv     = wire.Alltoallv
)

// A Send is a range that goes to another rank once the first After receives of the plan are complete.
type Send struct {
	Off, Len int64
	To       int32
	After    int32
	Input    bool // reduction: nothing has been added to the range before

	// Parts, if not nil, are the ranges that the piece consists of, of Len bytes in all. Off is unused.
	Parts []wire.Span
}

// A Copy moves bytes within the buffer of a rank.
type Copy struct{ From, To, Len int64 }

// A Recv is a range that arrives from another rank. The n-th receive from a rank matches the n-th send
// of that rank to this one.
type Recv struct {
	Off, Len int64
	From     int32
	Reduce   bool // whether to add it to the buffer's content
	First    bool // reduction: nothing has been added to the range before

	// Apart, for a reduction, puts the sum of the piece and of the range at Base here, and leaves that
	// range alone, because it may still be on its way to another rank.
	Apart bool
	Base  int64
}

// A Plan lists the sends and the receives of one rank, each in order.
type Plan struct {
	Kind   Kind
	Algo   string
	Rank   int
	Size   int
	Root   int
	Bytes  int64 // size of the call, the same on all ranks unless sizes are private
	Digest uint64
	Type   uint64 // as in Spec
	Sends  []Send
	Recvs  []Recv

	// The buffer of the plan: Input bytes of the send buffer where the plan uses it apart from the
	// receive buffer, then Output bytes of the receive buffer, then Scratch bytes.
	Input, Output, Scratch int64

	Before, After []Copy // copies before the first send, and after the last receive

	// Segments is the length of the buffer in segments, rounded down; the same on all ranks. It is 0
	// if blocks are sent whole. A rank sends at most 2*(Segments+Size) pieces to another.
	Segments int64

	// Partials lists the ranges that hold sums when a reduction sends them on, sorted and disjoint.
	Partials []Partial

	peers   []contact // peers of the plan, senders first
	senders int       // number of peers that send to this rank
	byRank  []int32   // indices of peers, sorted by rank
}

// A Spec describes the wanted collective. Counts are the sizes of the blocks, one per rank. For
// Broadcast, Reduce and Allreduce, Bytes is the size of the buffer. The blocks of an Alltoall are equally
// large. Of a Gatherv and a Scatterv, only the root knows Counts; other ranks set their own count only.
// For an Alltoallv, Counts are the blocks that this rank sends, and Receives those that it receives.
type Spec struct {
	Kind     Kind
	Rank     int
	Size     int
	Root     int
	Bytes    int64
	Counts   []int64
	Receives []int64
	Radix    int // radix of knomial; 0 means 4
	// Segment is the piece size of pipelined algorithms. 0 means whole blocks, or a default for chain
	// and binary.
	Segment int64
	Align   int64 // unit of piece offsets within a block; 0 means 1

	// Type is any further value that must be the same on all ranks, such as the encoded element type
	// and operator of a reduction. It is only compared.
	Type uint64
}

// ErrSpec marks an invalid Spec.
var ErrSpec = errors.New("bad collective")

type algorithm func(b *planBuilder)

var algorithms = map[Kind]map[string]algorithm{
	Broadcast: {
		"binomial": binomial, "knomial": knomial, "binary": binary, "chain": chain,
		"scatter-allgather": scatterAllgather,
	},
	Allgather: {
		"ring": ringAllgather, "linear": linearAllgather, "recursive-doubling": doublingAllgather, "bruck": bruck,
		"pat": patAllgather,
	},
	ReduceScatter: {"ring": ringReduceScatter, "recursive-halving": halvingReduceScatter, "pat": patReduceScatter},
	Allreduce: {
		"ring": ringAllreduce, "recursive-halving": halvingAllreduce, "recursive-doubling": doublingAllreduce,
	},
	Barrier:   {"dissemination": dissemination, "recursive-doubling": doublingBarrier},
	Gather:    {"linear": linearGather, "binomial": binomialGather},
	Gatherv:   {"linear": linearGather},
	Scatter:   {"linear": linearScatter, "binomial": binomialScatter},
	Scatterv:  {"linear": linearScatter},
	Reduce:    {"binomial": binomialReduce, "chain": chainReduce, "ring": ringReduce},
	Alltoall:  {"pairwise": pairwise, "bruck": bruckAlltoall},
	Alltoallv: {"pairwise": pairwise},
}

// Algorithms returns the algorithms for a kind, sorted.
func Algorithms(k Kind) []string {
	var names []string
	for n := range algorithms[k] {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// New returns the plan of one rank.
func New(algo string, s Spec) (*Plan, error) {
	construct, ok := algorithms[s.Kind][algo]
	if !ok {
		return nil, fmt.Errorf("%w: unknown algorithm %q for %v: valid are %s",
			ErrSpec, algo, s.Kind, strings.Join(Algorithms(s.Kind), ", "))
	}
	if algo != "knomial" {
		s.Radix = 0 // unused: a difference must not count as a mismatch
	}
	if s.Segment == 0 && (algo == "chain" || algo == "binary") {
		s.Segment = defaultSegment // without segments they would not be pipelined
	}
	if err := s.complete(); err != nil {
		return nil, err
	}
	b := newBuild(algo, s)
	b.keepOwn()
	if s.Size > 1 {
		construct(b)
	}
	b.plan.contacts()
	b.plan.ownership()
	return b.plan, nil
}

// maxPieces limits the segments of a plan. More are a mistake by the caller.
const maxPieces = 1 << 24

// complete sets defaults, clears fields that the kind does not use, and checks the rest.
func (s *Spec) complete() error {
	if s.Radix == 0 {
		s.Radix = 4
	}
	s.Align = max(s.Align, 1)
	blocks := s.Kind.Blocks()
	uneven := func(n int64) bool { return n != s.Counts[0] }
	switch {
	case s.Size < 1 || s.Rank < 0 || s.Rank >= s.Size:
		return fmt.Errorf("%w: rank %d of %d", ErrSpec, s.Rank, s.Size)
	case s.Kind.Rooted() && (s.Root < 0 || s.Root >= s.Size):
		return fmt.Errorf("%w: root %d: must be 0 to %d", ErrSpec, s.Root, s.Size-1)
	case s.Radix < 2:
		return fmt.Errorf("%w: radix %d: must be at least 2", ErrSpec, s.Radix)
	case s.Bytes < 0 || s.Segment < 0:
		return fmt.Errorf("%w: sizes must be 0 or more", ErrSpec)
	case blocks && len(s.Counts) != s.Size:
		return fmt.Errorf("%w: %d sizes for %d ranks", ErrSpec, len(s.Counts), s.Size)
	case s.Kind == Alltoallv && len(s.Receives) != s.Size:
		return fmt.Errorf("%w: %d sizes to receive for %d ranks", ErrSpec, len(s.Receives), s.Size)
	case s.Kind == Alltoallv && s.Counts[s.Rank] != s.Receives[s.Rank]:
		return fmt.Errorf("%w: this rank sends %d bytes to itself and receives %d",
			ErrSpec, s.Counts[s.Rank], s.Receives[s.Rank])
	case s.Kind == Alltoall && slices.ContainsFunc(s.Counts, uneven):
		return fmt.Errorf("%w: the blocks of an alltoall must be equally large", ErrSpec)
	}
	if s.Kind != Alltoallv {
		s.Receives = nil
	}
	sum, err := sumOf(slices.Concat(s.Counts, s.Receives))
	if err != nil {
		return err
	}
	if !s.Kind.Rooted() {
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
		return fmt.Errorf("%w: segments of %d bytes cut %d bytes into more than %d pieces",
			ErrSpec, s.Segment, sum, maxPieces)
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
