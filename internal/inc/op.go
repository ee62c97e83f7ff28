package inc

import (
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// A Reduction is a Reduce-Scatter by aggregators. Everything but Rank is the same on all ranks.
type Reduction struct {
	Rank, Size int
	Kind       wire.CallKind // of the call: ReduceScatter, or Allreduce if this is its first round
	Counts     []int64       // bytes of each block
	Chunk      int           // bytes of a chunk: a multiple of every element size
	Type       uint16        // as in wire.Call
	Tree       uint64        // Tree.Digest
}

// Check reports what is wrong with a Reduction.
func (r *Reduction) Check() error { panic("TODO") }

// Call describes the call for error messages.
func (r *Reduction) Call() wire.Call { panic("TODO") }

// Aggregation is the state of this rank's aggregators. The driver updates it.
type Aggregation struct {
	Window uint32 // of a communicator; 0: the aggregators cannot be used
	Why    string // reason why not
}

// Limits bound the patience of an Op.
type Limits struct {
	Tries  int       // requests for a chunk before its owner fetches it
	Silent step.Time // time without any sum after which the aggregators count as failed
}

// A Config describes an Op.
type Config struct {
	Reduction *Reduction
	Comm      uint32
	Seq       uint64
	Window    uint32           // of this rank; 0: its aggregators cannot be used
	Alpha     func() step.Time // time of a message and its answer, with a margin
	Limits    Limits
	Batch     uint32 // largest number of places of one ActReduce
}

// An Op runs a Reduction on one rank.
type Op struct{ cfg Config }

// New returns an Op that waits for EvStart. The Reduction must pass Check.
func New(cfg Config) *Op { panic("TODO") }

// Layout returns the order of the chunks.
func (o *Op) Layout() *Layout { panic("TODO") }

// Record returns the record of the chunks of this rank's block. The driver takes a chunk, adds the sum and this rank's
// contribution, and finishes it. A second copy of a sum finds its chunk taken.
func (o *Op) Record() *place.Map { panic("TODO") }

// Step handles an event and appends the resulting actions to out.
func (o *Op) Step(now step.Time, ev step.Event, out []step.Action) []step.Action { panic("TODO") }

// Summed reports that chunks of this rank's block were placed by datagrams.
func (o *Op) Summed(now step.Time, out []step.Action) []step.Action { panic("TODO") }

// Lost reports that the aggregators of this rank can no longer be used.
func (o *Op) Lost(now step.Time, out []step.Action) []step.Action { panic("TODO") }

// Aggregated reports whether aggregators make the sums. It is false in the barrier, and when owners fetch.
func (o *Op) Aggregated() bool { panic("TODO") }

// FellBack reports whether this operation began with aggregators and continued without, or had to do without.
func (o *Op) FellBack() bool { panic("TODO") }

// Timer returns the time of the next timer.
func (o *Op) Timer() step.Time { panic("TODO") }

// Phase returns the current phase.
func (o *Op) Phase() step.Phase { panic("TODO") }

// Times returns the times at which the Op reached its phases.
func (o *Op) Times() step.Times { panic("TODO") }

// Stats returns the counters.
func (o *Op) Stats() step.Stats { panic("TODO") }

// Fail ends the Op.
func (o *Op) Fail() { panic("TODO") }

// WaitingOn returns the rank that must act next, as far as this rank can tell.
func (o *Op) WaitingOn() int { panic("TODO") }

// Missing describes the missing chunks for error messages.
func (o *Op) Missing(name step.Namer) string { panic("TODO") }
