package inc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"

	"github.com/allcast/allcast/internal/wire"
)

// ErrReduction marks an invalid Reduction.
var ErrReduction = errors.New("bad reduction")

// A Reduction is a Reduce-Scatter by aggregators. Everything but Rank is the same on all ranks.
type Reduction struct {
	Rank, Size int
	Kind       wire.CallKind // of the call: ReduceScatter, or Allreduce if this is its first round
	Counts     []int64       // bytes of each block
	Chunk      int           // bytes of a chunk: a multiple of every element size
	Type       uint16        // as in wire.Call
	Tree       uint64        // Tree.Digest
}

const (
	maxPlaces   = 1 << 31 // chunks of a Reduction
	elementSize = 8       // multiple of the size of every element type
)

// Check reports what is wrong with a Reduction.
func (r *Reduction) Check() error {
	switch {
	case r.Kind != wire.ReduceScatter && r.Kind != wire.Allreduce:
		return fmt.Errorf("%w: aggregators do not carry out %v: they do reduce-scatter and allreduce", ErrReduction, r.Kind)
	case r.Size < 1 || r.Size > maxRanks || r.Rank < 0 || r.Rank >= r.Size:
		return fmt.Errorf("%w: rank %d of %d: aggregators serve up to %d ranks", ErrReduction, r.Rank, r.Size, maxRanks)
	case r.Chunk < elementSize || r.Chunk%elementSize != 0:
		return fmt.Errorf("%w: chunk of %d bytes: must be a multiple of %d", ErrReduction, r.Chunk, elementSize)
	case len(r.Counts) != r.Size:
		return fmt.Errorf("%w: %d sizes for %d ranks", ErrReduction, len(r.Counts), r.Size)
	}
	var sum, chunks int64
	for rank, n := range r.Counts {
		if n < 0 || n > math.MaxInt64-sum-int64(r.Chunk) {
			return fmt.Errorf("%w: block %d has %d bytes: sizes must be 0 or more and their sum fit 63 bits",
				ErrReduction, rank, n)
		}
		sum += n
		chunks += (n + int64(r.Chunk) - 1) / int64(r.Chunk)
	}
	if chunks >= maxPlaces {
		return fmt.Errorf("%w: %d bytes are more than %d chunks of %d", ErrReduction, sum, int64(maxPlaces), r.Chunk)
	}
	return nil
}

// Call describes the call for error messages.
func (r *Reduction) Call() wire.Call {
	c := wire.Call{Kind: r.Kind, Algo: wire.AlgorithmOf("inc"), Type: r.Type}
	for _, n := range r.Counts {
		c.Bytes += uint64(n)
	}
	return c
}

// digest identifies the call. If the digests of two ranks differ, the ranks made different calls.
func (r *Reduction) digest() uint64 {
	h := fnv.New64a()
	put := func(v uint64) {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], v)
		h.Write(b[:])
	}
	h.Write([]byte("inc"))
	for _, v := range []int{int(r.Kind), r.Size, r.Chunk, int(r.Type)} {
		put(uint64(v))
	}
	put(r.Tree)
	for _, n := range r.Counts {
		put(uint64(n))
	}
	return h.Sum64()
}
