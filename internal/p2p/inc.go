package p2p

import (
	"fmt"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// A Reduction is a Reduce-Scatter or Allreduce that the network carries out:
// ranks send their inputs up a tree, the switches add them chunk by chunk, and the
// top sends each sum to whom it belongs (in-network computing, as SHARP does).
//
// All ranks send chunks in the same order, so that switches with few buffers meet
// the same chunk from all sides: the first chunks of all blocks, then the second
// ones, and so on, so that results reach all ranks at an even rate. In a
// Reduce-Scatter a rank sends up the blocks of the others and adds its own locally;
// of its own block it sends only the first chunk, empty, which tells the tree that
// it is ready to receive.
//
// The network adds up whatever it gets. So that ranks which called different
// things find out all the same, each tells its right neighbour in the ring what it
// called, and nobody ends before it has heard of its left one.
type Reduction struct {
	Kind   Kind
	Rank   int
	Size   int
	Counts []int64 // blocks; an Allreduce takes them for one that everybody gets
	Chunk  int
	Type   uint64 // as in Spec
}

// blocks are what is cut into chunks.
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

// Check says what is wrong with a Reduction.
func (r *Reduction) Check() error {
	switch {
	case r.Kind != ReduceScatter && r.Kind != Allreduce:
		return fmt.Errorf("%w: the network does not carry out %v: it does reduce-scatter and allreduce", ErrSpec, r.Kind)
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

// maxChunks is what a bitmap can number.
const maxChunks = 1 << 31

func (r *Reduction) digest() uint64 {
	return digest("inc", r.blocks(), int64(r.Kind), int64(r.Size), int64(r.Chunk), int64(r.Type))
}

// incBatch is how many chunks are handed to the fabric at a time.
const incBatch = 32

// IncOp runs a Reduction on one rank.
type IncOp struct {
	life
	red    *Reduction
	comm   uint32
	seq    uint64
	counts []int64 // of blocks
	digest uint64
	heard  bool // the left neighbour in the ring has greeted
	displs []int64
	block  int   // whose chunk comes next,
	at     int64 // and where in the block
	most   int64 // the largest block
	flying int
	due    int64         // bytes of results to come
	lo, hi int64         // where they belong
	got    *mcast.Bitmap // by chunk
}

// NewIncOp returns an IncOp that waits for EvStart. The Reduction must pass Check.
func NewIncOp(r *Reduction) *IncOp {
	counts := r.blocks()
	o := &IncOp{red: r, counts: counts, digest: r.digest(), heard: r.Size == 1, displs: make([]int64, len(counts)+1)}
	for i, n := range counts {
		o.displs[i+1] = o.displs[i] + n
		o.most = max(o.most, n)
		if r.Size > 1 && (r.Kind == Allreduce || i == r.Rank) {
			o.due += n
		}
	}
	o.hi = o.displs[len(counts)]
	if r.Kind == ReduceScatter {
		o.lo, o.hi = o.displs[r.Rank], o.displs[r.Rank+1]
	}
	o.got = mcast.NewBitmap(uint32((o.hi - o.lo + int64(r.Chunk) - 1) / int64(r.Chunk)))
	if r.Size == 1 {
		o.most = 0
	}
	return o
}

// Numbered gives the Executor the identity that its message carries.
func (o *IncOp) Numbered(comm uint32, seq uint64) *IncOp {
	o.comm, o.seq = comm, seq
	return o
}

// left and right are the neighbours in the ring.
func (o *IncOp) left() int  { return (o.red.Rank + o.red.Size - 1) % o.red.Size }
func (o *IncOp) right() int { return (o.red.Rank + 1) % o.red.Size }

// Step tells the Executor what happened and appends what to do to out.
func (o *IncOp) Step(now step.Time, ev step.Event, out []step.Action) []step.Action {
	if o.mismatched(&ev, o.digest) {
		return append(out, step.Action{Kind: step.ActMismatch, To: ev.From, Msg: *ev.Msg})
	}
	if o.phase >= step.Closed {
		return out
	}
	switch ev.Kind {
	case step.EvStart:
		o.begin(now)
		if o.red.Size > 1 {
			out = append(out, step.Action{Kind: step.ActSend, To: o.right(), Msg: o.msg()})
		}
	case step.EvMsg:
		o.heard = o.heard || (ev.Msg.Kind == wire.MsgReady && ev.From == o.left())
	case step.EvSent:
		o.flying -= int(ev.N)
	}
	return o.settle(now, o.pump(out))
}

func (o *IncOp) msg() wire.Msg {
	return wire.Msg{
		Kind: wire.MsgReady, Comm: o.comm, Seq: o.seq, Digest: o.digest,
		Call: o.red.Call(),
	}
}

// Result takes a piece of the sum that arrived at offset off.
func (o *IncOp) Result(now step.Time, off, length int64, out []step.Action) (ok bool, _ []step.Action) {
	chunk := int64(o.red.Chunk)
	if o.phase != step.Transfer || off < o.lo || off >= o.hi || (off-o.lo)%chunk != 0 || length != min(chunk, o.hi-off) {
		return false, out
	}
	if !o.got.Set(uint32((off - o.lo) / chunk)) {
		return false, out
	}
	o.due -= length
	return true, o.settle(now, out)
}

// pump hands over chunks: the same piece of every block, then the next piece.
func (o *IncOp) pump(out []step.Action) []step.Action {
	for o.phase == step.Transfer && o.at < o.most && o.flying < incBatch {
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
		o.flying++
	}
	return out
}

func (o *IncOp) settle(now step.Time, out []step.Action) []step.Action {
	if o.phase != step.Transfer || o.due > 0 || o.at < o.most || o.flying > 0 || !o.heard {
		return out
	}
	return o.end(now, out)
}

// Stats returns the Executor's counters.
func (o *IncOp) Stats() step.Stats { return step.Stats{} }

// WaitingOn is the left neighbour: the switches do not say whom they wait for,
// but who asks around the ring comes to the rank that has not made the call.
func (o *IncOp) WaitingOn() int { return o.left() }

// Missing describes what has not arrived, for people.
func (o *IncOp) Missing(step.Namer) string {
	if o.due == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%d bytes of the sum", o.due)
}
