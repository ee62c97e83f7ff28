package clustertest

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/allcast/allcast/internal/wire"
)

// Exchanges reports whether the send buffer and the receive buffer of a collective hold different data. The
// buffer of a rank then is its send buffer, followed by its receive buffer.
func Exchanges(k wire.CallKind) bool {
	switch k {
	case wire.Gather, wire.Gatherv, wire.Scatter, wire.Scatterv, wire.Alltoall, wire.Alltoallv:
		return true
	}
	return false
}

// Between returns the bytes that one rank has for another in an exchange.
func (f *Reference) Between(from, to int) int64 {
	switch f.Kind {
	case wire.Gather, wire.Gatherv:
		if to == f.Root {
			return f.Counts[from]
		}
	case wire.Scatter, wire.Scatterv:
		if from == f.Root {
			return f.Counts[to]
		}
	case wire.Alltoall:
		return f.Counts[0]
	case wire.Alltoallv:
		return f.Counts[(from+to)%f.Size]
	}
	return 0
}

// Exchanged returns the blocks of an exchange that a rank sends, or that it receives, in rank order.
func (f *Reference) Exchanged(rank int, receives bool) (all []byte) {
	for r := range f.Size {
		from, to := rank, r
		if receives {
			from, to = r, rank
		}
		all = append(all, noise(f.Seed, uint64(from*f.Size+to), f.Between(from, to))...)
	}
	return all
}

// Known returns the sizes that a rank passes to the call: all of them, or those that the rank knows.
func (f *Reference) Known(rank int) (counts, receives []int64) {
	switch {
	case f.Kind == wire.Alltoallv:
		counts, receives = make([]int64, f.Size), make([]int64, f.Size)
		for r := range f.Size {
			counts[r], receives[r] = f.Between(rank, r), f.Between(r, rank)
		}
		return counts, receives
	case f.Kind.Private() && rank != f.Root:
		counts = make([]int64, f.Size)
		counts[rank] = f.Counts[rank]
		return counts, nil
	}
	return f.Counts, nil
}

// noise returns random bytes.
func noise(seed, stream uint64, n int64) []byte {
	source := rand.NewPCG(seed, stream)
	b := make([]byte, 0, n+8)
	for int64(len(b)) < n {
		b = binary.LittleEndian.AppendUint64(b, source.Uint64())
	}
	return b[:n]
}

// Gather returns a copy of a piece: a range of a buffer, or several.
func Gather[T any](buf []T, off, n int64, parts []wire.Span) (data []T) {
	if parts == nil {
		return slices.Clone(buf[off : off+n])
	}
	for _, p := range parts {
		data = append(data, buf[p.Off:p.Off+p.Len]...)
	}
	return data
}
