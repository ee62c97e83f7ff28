package bench

import (
	"context"
	"fmt"
	"slices"

	"github.com/allcast/allcast"
)

// RawHeader is the first line of a log of raw times. record writes the others.
const RawHeader = "rank,op,algo,bytes,iteration,start_ns,duration_ns\n"

// record collects the iterations of all ranks. Rank 0 writes them to its log.
func (b *Bench) record(ctx context.Context, r *Result, t *tally) error {
	mine := slices.Concat(t.starts, t.times)
	all := make([]int64, len(mine)*b.Comm.Size())
	if err := allcast.AllgatherSlice(ctx, b.Comm, mine, all); err != nil || b.Raw == nil {
		return err
	}
	n := len(t.times)
	for rank := range b.Comm.Size() {
		starts, times := all[2*n*rank:][:n], all[2*n*rank+n:][:n]
		for i := range n {
			_, err := fmt.Fprintf(b.Raw, "%d,%s,%s,%d,%d,%d,%d\n", rank, r.Op, r.Algo, r.Bytes, i, starts[i], times[i])
			if err != nil {
				return err
			}
		}
	}
	return nil
}
