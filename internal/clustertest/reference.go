package clustertest

import (
	"fmt"
	"slices"

	"github.com/allcast/allcast/internal/wire"
)

// A Reference says what the buffers of all ranks hold before and after a collective. It adds bytes
// for reductions.
type Reference struct {
	Kind   wire.CallKind
	Size   int
	Root   int
	Bytes  int64   // of the buffer, where Counts is nil
	Counts []int64 // bytes of each block
	Seed   uint64

	want []byte
}

// Total is the size of a buffer.
func (f *Reference) Total() (n int64) {
	if f.Counts == nil {
		return f.Bytes
	}
	for _, x := range f.Counts {
		n += x
	}
	return n
}

// Block is the range of a rank's block.
func (f *Reference) Block(rank int) (lo, hi int64) {
	for _, x := range f.Counts[:rank] {
		lo += x
	}
	return lo, lo + f.Counts[rank]
}

// Owned is the range that a rank contributes.
func (f *Reference) Owned(rank int) (lo, hi int64) {
	switch f.Kind {
	case wire.ReduceScatter, wire.Allreduce, wire.Reduce:
		return 0, f.Total()
	case wire.Allgather:
		return f.Block(rank)
	case wire.Broadcast:
		if rank == f.Root {
			return 0, f.Total()
		}
	}
	return 0, 0
}

// Wanted is the range that a rank must have in the end.
func (f *Reference) Wanted(rank int) (lo, hi int64) {
	switch {
	case f.Kind == wire.ReduceScatter:
		return f.Block(rank)
	case f.Kind == wire.Reduce && rank != f.Root:
		return 0, 0
	}
	return 0, f.Total()
}

// Input is the buffer of a rank before the call: noise, also where the rank contributes nothing.
func (f *Reference) Input(rank int) []byte {
	if Exchanges(f.Kind) {
		sent := f.Exchanged(rank, false)
		return append(sent, noise(f.Seed+1, uint64(rank), int64(len(f.Exchanged(rank, true))))...)
	}
	return noise(f.Seed, uint64(rank), f.Total())
}

// Want is the result of the call.
func (f *Reference) Want() []byte {
	if f.want == nil {
		f.want = make([]byte, f.Total())
		for r := range f.Size {
			lo, hi := f.Owned(r)
			if lo < hi {
				Sum(f.want[lo:hi], f.Input(r)[lo:hi])
			}
		}
	}
	return f.want
}

// Check compares the buffer of a rank with the result.
func (f *Reference) Check(rank int, got []byte) error {
	lo, hi := f.Wanted(rank)
	want := f.Want
	if Exchanges(f.Kind) {
		received := f.Exchanged(rank, true)
		got = got[len(f.Exchanged(rank, false)):]
		lo, hi, want = 0, int64(len(received)), func() []byte { return received }
	}
	for ; lo < hi; lo++ {
		if got[lo] != want()[lo] {
			return fmt.Errorf("rank %d has %#02x at byte %d, want %#02x", rank, got[lo], lo, want()[lo])
		}
	}
	return nil
}

// Sum adds bytes.
func Sum(to, from []byte) {
	for i, x := range from {
		to[i] += x
	}
}

const poison = 0xa5

// Poison overwrites a buffer that belongs to the user again.
func Poison(b []byte) {
	for i := range b {
		b[i] = poison
	}
}

// Poisoned reports whether nothing has been written to a buffer since Poison.
func Poisoned(b []byte) bool {
	return !slices.ContainsFunc(b, func(x byte) bool { return x != poison })
}
