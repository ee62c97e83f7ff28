package p2p

import (
	"fmt"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// A Reduction is a Reduce-Scatter or Allreduce that the network computes, as SHARP does. Ranks send
// their inputs up a tree, switches add them chunk by chunk, and the top sends each sum to the ranks
// that need it.
//
// All ranks send chunks in the same order, so that switches with few buffers receive the same chunk
// from all sides. The order is: the first chunk of every block, then the second chunk of every block,
// and so on. Results therefore reach all ranks at an even rate. In a Reduce-Scatter, a rank sends the
// other ranks' blocks up the tree and adds its own block locally. Of its own block it sends only the
// first chunk, empty, which tells the tree that the rank is ready to receive.
//
// The network adds whatever it receives. To detect different calls, each rank tells its right
// neighbour on the ring which call it made. No rank completes before its left neighbour has told it.
type Reduction struct {
	Kind   Kind
	Rank   int
	Size   int
	Counts []int64 // block sizes; an Allreduce treats them as one block for all ranks
	Chunk  int
	Type   uint64 // as in Spec
}

// blocks returns the sizes of the blocks that are cut into chunks.
func (r *Reduction) blocks() []int64 {
	if r.Kind != Allreduce {
		return r.Counts
	}
	sum := int64(0)
	for _, n := range r.Counts {
		sum += n
	}
	return []int64{sum}
}

// Check reports what is wrong with a Reduction.
func (r *Reduction) Check() error {
	switch {
	case r.Kind != ReduceScatter && r.Kind != Allreduce:
		return fmt.Errorf("%w: the network does not carry out %v: it does reduce-scatter and allreduce",
			ErrSpec, r.Kind)
	case r.Size < 1 || r.Rank < 0 || r.Rank >= r.Size:
		return fmt.Errorf("%w: rank %d of %d", ErrSpec, r.Rank, r.Size)
	case r.Chunk < 1:
		return fmt.Errorf("%w: chunk of %d bytes: must be at least 1", ErrSpec, r.Chunk)
	case len(r.Counts) == 0 || (r.Kind == ReduceScatter && len(r.Counts) != r.Size):
		return fmt.Errorf("%w: %d sizes for %d ranks", ErrSpec, len(r.Counts), r.Size)
	}
	sum, err := sumOf(r.Counts)
	if err == nil && sum/int64(r.Chunk) >= maxChunks {
		err = fmt.Errorf("%w: %d bytes are more than %d chunks of %d", ErrSpec, sum, int64(maxChunks), r.Chunk)
	}
	return err
}

// maxChunks is the capacity of a bitmap.
const maxChunks = 1 << 31

func (r *Reduction) digest() uint64 {
	return digest("inc", r.blocks(), int64(r.Kind), int64(r.Size), int64(r.Chunk), int64(r.Type))
}

// incBatch limits the chunks handed to the fabric at a time.
const incBatch = 32

// IncOp runs a Reduction on one rank.
type IncOp struct {
	lifecycle
	red      *Reduction
	comm     uint32
	seq      uint64
	counts   []int64 // block sizes
	digest   uint64
	greeted  bool // whether the left neighbour on the ring has greeted
	displs   []int64
	block    int   // block of the next chunk
	at       int64 // offset of the next chunk in its block
	maxBlock int64 // size of the largest block
	inFlight int
	due      int64         // bytes of results that have not arrived
	lo, hi   int64         // range of the results in the buffer
	received *mcast.Bitmap // results that have arrived, by chunk
}

// NewIncOp returns an IncOp that waits for EvStart. The Reduction must pass Check.
func NewIncOp(r *Reduction) *IncOp {
	counts := r.blocks()
	o := &IncOp{
		red: r, counts: counts, digest: r.digest(), greeted: r.Size == 1, displs: make([]int64, len(counts)+1),
	}
	for i, n := range counts {
		o.displs[i+1] = o.displs[i] + n
		o.maxBlock = max(o.maxBlock, n)
		if r.Size > 1 && (r.Kind == Allreduce || i == r.Rank) {
			o.due += n
		}
	}
	o.hi = o.displs[len(counts)]
	if r.Kind == ReduceScatter {
		o.lo, o.hi = o.displs[r.Rank], o.displs[r.Rank+1]
	}
	o.received = mcast.NewBitmap(uint32((o.hi - o.lo + int64(r.Chunk) - 1) / int64(r.Chunk)))
	if r.Size == 1 {
		o.maxBlock = 0
	}
	return o
}

// Numbered sets the communicator and number that the messages carry.
func (o *IncOp) Numbered(comm uint32, seq uint64) *IncOp {
	o.comm, o.seq = comm, seq
	return o
}

// left and right return the neighbours on the ring.
func (o *IncOp) left() int  { return (o.red.Rank + o.red.Size - 1) % o.red.Size }
func (o *IncOp) right() int { return (o.red.Rank + 1) % o.red.Size }

// Step handles an event and appends the resulting actions to out.
func (o *IncOp) Step(now step.Time, ev step.Event, out []step.Action) []step.Action {
	if o.mismatched(&ev, o.digest) {
		return append(out, step.Action{Kind: step.ActMismatch, To: ev.From, Msg: *ev.Msg})
	}
	if o.phase >= step.Closed {
		return out
	}
	switch ev.Kind {
	case step.EvStart:
		o.start(now)
		if o.red.Size > 1 {
			out = append(out, step.Action{Kind: step.ActSend, To: o.right(), Msg: o.msg()})
		}
	case step.EvMsg:
		o.greeted = o.greeted || (ev.Msg.Kind == wire.MsgReady && ev.From == o.left())
	case step.EvSent:
		o.inFlight -= int(ev.N)
	}
	return o.settle(now, o.pump(out))
}

func (o *IncOp) msg() wire.Msg {
	return wire.Msg{
		Kind: wire.MsgReady, Comm: o.comm, Seq: o.seq, Digest: o.digest,
		Call: o.red.Call(),
	}
}

// Result handles a piece of the sum at offset off. It returns false if the piece is unexpected.
func (o *IncOp) Result(now step.Time, off, length int64, out []step.Action) (ok bool, _ []step.Action) {
	chunk := int64(o.red.Chunk)
	if o.phase != step.Transfer || off < o.lo || off >= o.hi ||
		(off-o.lo)%chunk != 0 || length != min(chunk, o.hi-off) {
		return false, out
	}
	if !o.received.Set(uint32((off - o.lo) / chunk)) {
		return false, out
	}
	o.due -= length
	return true, o.settle(now, out)
}

// pump hands over chunks: the same piece of every block, then the next piece.
func (o *IncOp) pump(out []step.Action) []step.Action {
	for o.phase == step.Transfer && o.at < o.maxBlock && o.inFlight < incBatch {
		i, at := o.block, o.at
		if o.block++; o.block == len(o.counts) {
			o.block, o.at = 0, o.at+int64(o.red.Chunk)
		}
		n := min(o.counts[i]-at, int64(o.red.Chunk))
		own := o.red.Kind == ReduceScatter && i == o.red.Rank
		if n <= 0 || (own && at > 0) {
			continue
		}
		if own {
			n = 0
		}
		out = append(out, step.Action{Kind: step.ActReduce, Off: o.displs[i] + at, Len: n})
		o.inFlight++
	}
	return out
}

func (o *IncOp) settle(now step.Time, out []step.Action) []step.Action {
	if o.phase != step.Transfer || o.due > 0 || o.at < o.maxBlock || o.inFlight > 0 || !o.greeted {
		return out
	}
	return o.complete(now, out)
}

// WaitingOn returns the left neighbour. The switches do not report which rank they wait for, but a
// search along the ring reaches the rank that has not made the call.
func (o *IncOp) WaitingOn() int { return o.left() }

// Missing describes the missing results for error messages.
func (o *IncOp) Missing(step.Namer) string {
	if o.due == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%d bytes of the sum", o.due)
}
