package p2p

import (
	"fmt"

	"github.com/allcast/allcast/internal/protocol"
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
type Reduction struct {
	Kind   Kind
	Rank   int
	Size   int
	Counts []int64 // blocks; for an Allreduce one that everybody gets
	Chunk  int
}

// incBatch is how many chunks are handed to the fabric at a time.
const incBatch = 32

// IncOp runs a Reduction on one rank.
type IncOp struct {
	life
	red    *Reduction
	displs []int64
	block  int   // whose chunk comes next,
	at     int64 // and where in the block
	most   int64 // the largest block
	flying int
	due    int64            // bytes of results to come
	lo, hi int64            // where they belong
	got    *protocol.Bitmap // by chunk
}

// NewIncOp returns an IncOp that waits for EvStart.
func NewIncOp(r *Reduction) *IncOp {
	o := &IncOp{red: r, displs: make([]int64, len(r.Counts)+1)}
	for i, n := range r.Counts {
		o.displs[i+1] = o.displs[i] + n
		o.most = max(o.most, n)
		if r.Size > 1 && (r.Kind == Allreduce || i == r.Rank) {
			o.due += n
		}
	}
	o.hi = o.displs[len(r.Counts)]
	if r.Kind == ReduceScatter {
		o.lo, o.hi = o.displs[r.Rank], o.displs[r.Rank+1]
	}
	o.got = protocol.NewBitmap(uint32((o.hi - o.lo + int64(r.Chunk) - 1) / int64(r.Chunk)))
	if r.Size == 1 {
		o.most = 0
	}
	return o
}

// Step tells the Op what happened and appends what to do to out.
func (o *IncOp) Step(now protocol.Time, ev protocol.Event, out []protocol.Action) []protocol.Action {
	if o.phase >= protocol.Closed {
		return out
	}
	switch ev.Kind {
	case protocol.EvStart:
		o.begin(now)
	case protocol.EvSent:
		o.flying -= int(ev.N)
	}
	return o.settle(now, o.pump(out))
}

// Result takes a piece of the sum that arrived at offset off.
func (o *IncOp) Result(now protocol.Time, off, length int64, out []protocol.Action) (ok bool, _ []protocol.Action) {
	chunk := int64(o.red.Chunk)
	if o.phase != protocol.Transfer || off < o.lo || off >= o.hi || (off-o.lo)%chunk != 0 || length != min(chunk, o.hi-off) {
		return false, out
	}
	if !o.got.Set(uint32((off - o.lo) / chunk)) {
		return false, out
	}
	o.due -= length
	return true, o.settle(now, out)
}

// pump hands over chunks: the same piece of every block, then the next piece.
func (o *IncOp) pump(out []protocol.Action) []protocol.Action {
	for o.phase == protocol.Transfer && o.at < o.most && o.flying < incBatch {
		i, at := o.block, o.at
		if o.block++; o.block == len(o.red.Counts) {
			o.block, o.at = 0, o.at+int64(o.red.Chunk)
		}
		n := min(o.red.Counts[i]-at, int64(o.red.Chunk))
		own := o.red.Kind == ReduceScatter && i == o.red.Rank
		if n <= 0 || (own && at > 0) {
			continue
		}
		if own {
			n = 0
		}
		out = append(out, protocol.Action{Kind: protocol.ActReduce, Off: o.displs[i] + at, Len: n})
		o.flying++
	}
	return out
}

func (o *IncOp) settle(now protocol.Time, out []protocol.Action) []protocol.Action {
	if o.phase != protocol.Transfer || o.due > 0 || o.at < o.most || o.flying > 0 {
		return out
	}
	return o.end(now, out)
}

// Stats returns the Op's counters.
func (o *IncOp) Stats() protocol.Stats { return protocol.Stats{} }

// WaitingOn is the rank itself: the switches do not say whom they wait for.
func (o *IncOp) WaitingOn() int { return o.red.Rank }

// Missing describes what has not arrived, for people.
func (o *IncOp) Missing() string {
	if o.due == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%d bytes of the sum", o.due)
}
