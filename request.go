package allcast

import (
	"context"

	"github.com/allcast/allcast/internal/engine"
)

// A Request is an operation under way.
type Request struct {
	req  *engine.Request
	comm *Comm
}

// Done is closed when the operation has ended. Until then its buffers are
// Allcast's.
func (r *Request) Done() <-chan struct{} { return r.req.Done() }

// Err is how the operation ended; nil as long as it has not.
func (r *Request) Err() error { return exportError(r.req.Err(), r.comm.members) }

// Wait waits for the operation and returns how it ended. If ctx ends first, Wait
// returns its error; the operation goes on, and its buffers stay Allcast's until Done.
func (r *Request) Wait(ctx context.Context) error {
	r.req.Wait(ctx)
	if !r.req.Over() {
		return ctx.Err()
	}
	return r.Err()
}

// Info says how an operation is carried out.
type Info struct {
	Algorithm         string
	Chains, Subgroups int    // mcast: as used, after clamping to what the operation can use
	Chunk             int    // mcast: payload of a datagram
	Chunks            uint64 // mcast: in all
}

// Info says how the operation is carried out.
func (r *Request) Info() Info {
	i := r.req.Info()
	return Info{Algorithm: i.Algo, Chains: i.Chains, Subgroups: i.Subgroups, Chunk: i.Chunk, Chunks: i.Chunks}
}
