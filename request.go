package allcast

import (
	"context"

	"github.com/allcast/allcast/internal/engine"
)

// A Request is an operation that has been started.
type Request struct {
	req  *engine.Request
	comm *Comm
	tag  int // Send and Recv
}

// Done returns a channel that is closed when the operation has ended. Until then Allcast owns its buffers.
func (r *Request) Done() <-chan struct{} { return r.req.Done() }

// OnDone calls f once when the operation has ended, or at once if it has. f runs on a goroutine that serves the
// network: it must not block or wait for an operation, but it may start one. Programs with many requests need no
// goroutine per request this way.
func (r *Request) OnDone(f func()) { r.req.OnDone(f) }

// Err returns the error of the operation, and nil while the operation is running.
func (r *Request) Err() error { return exportError(r.req.Err(), r.comm.members) }

// Wait waits for the operation and returns its error. If ctx ends first, Wait returns the error of ctx. The
// operation then continues, and Allcast owns its buffers until Done is closed.
func (r *Request) Wait(ctx context.Context) error {
	r.req.Wait(ctx)
	if !r.req.Over() {
		return ctx.Err()
	}
	return r.Err()
}

// Cancel gives up the operation, unless it has ended, and returns at once. A Send or a Recv without a match is
// withdrawn, and its error matches ErrWithdrawn. If the data has already left or is about to arrive, it ends as if
// nothing had happened. Any other operation aborts the communicator, like a blocking call whose context ends.
//
// The operation ends soon, but Allcast owns its buffers until Done is closed.
func (r *Request) Cancel() { r.req.Cancel() }

// Info describes how an operation runs.
type Info struct {
	Algorithm         string // "direct" for Send and Recv
	Chains, Subgroups int    // mcast: numbers in use, after clamping
	Chunk             int    // mcast, inc: payload of a datagram in bytes
	Chunks            uint64 // mcast, inc: number of chunks of all ranks

	// Fallback is the reason why an operation by "inc" that has ended did not rely on aggregators: this rank or another
	// one gave them up for the operation, or this rank fetched an eighth of its sums or more. The ranks then added the
	// contributions themselves, with the same result. It is empty if the aggregators worked. A rank that fetched fewer
	// sums, because their datagrams were lost several times, does not report them here, but in Stats.IncFetchedBytes.
	Fallback string
}

// Info describes how the operation runs.
func (r *Request) Info() Info {
	i := r.req.Info()
	return Info{
		Algorithm: i.Algo, Chains: i.Chains, Subgroups: i.Subgroups, Chunk: i.Chunk, Chunks: i.Chunks,
		Fallback: r.req.Fallback(),
	}
}
