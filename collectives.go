package allcast

import (
	"context"
	"errors"
	"fmt"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/wire"
)

// A CallOption changes how one operation runs. All ranks must use the same options.
type CallOption func(*callOptions)

// callOptions is a call that options change before it starts.
type callOptions struct{ engine.Call }

// WithAlgorithm selects the algorithm: one of Algorithms, or "auto".
func WithAlgorithm(name string) CallOption { return func(c *callOptions) { c.Algo = name } }

// WithChains lets n ranks multicast at once (default 1). Values above the number of sending ranks are
// clamped.
func WithChains(n int) CallOption { return func(c *callOptions) { c.Chains = n } }

// WithChainsByRack makes one chain of the ranks of each rack (Options.Rack), so that a rank passes its
// turn to a rank nearby.
func WithChainsByRack() CallOption { return func(c *callOptions) { c.Racks = true } }

// WithSubgroups spreads the operation over n of the multicast groups that Options.Subgroups has opened
// (default 1).
func WithSubgroups(n int) CallOption { return func(c *callOptions) { c.Subgroups = n } }

// WithChunk sets the payload of a datagram in bytes, at most what fits the network.
func WithChunk(bytes int) CallOption { return func(c *callOptions) { c.Chunk = bytes } }

// WithSegment sets the size in bytes of the pieces that pipelined point-to-point algorithms send.
func WithSegment(bytes int64) CallOption { return func(c *callOptions) { c.Segment = bytes } }

// WithRadix sets the radix of the knomial Broadcast (default 4).
func WithRadix(k int) CallOption { return func(c *callOptions) { c.Radix = k } }

// start begins a call of the given size, which decides the algorithm.
func (c *Comm) start(call engine.Call, bytes int64, opts []CallOption) (*Request, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	k := callOptions{call}
	for _, o := range opts {
		o(&k)
	}
	if k.Chains < 0 || k.Subgroups < 0 || k.Chunk < 0 || k.Segment < 0 || k.Radix < 0 {
		return nil, invalid("chains %d, subgroups %d, chunk %d, segment %d, radix %d: none may be negative",
			k.Chains, k.Subgroups, k.Chunk, k.Segment, k.Radix)
	}
	algo, err := c.choose(k.Kind, k.Algo, bytes)
	if err != nil {
		return nil, err
	}
	c.logChoice(&k.Call, algo, bytes)
	k.Algo = algo
	if k.Racks {
		k.Groups = c.byRack()
	}
	r, err := c.job.Start(c.id, k.Call)
	if err != nil {
		return nil, exportError(err, c.members)
	}
	return &Request{r, c}, nil
}

// usable returns why no call can begin; nil: one can.
func (c *Comm) usable() error {
	switch {
	case c == nil:
		return invalid("a nil communicator")
	case c.closed.Load():
		return exportError(engine.ErrClosed, nil)
	}
	if err := c.cancelled.Load(); err != nil {
		return err
	}
	return nil
}

// ready returns why a blocking call cannot begin; nil: it can. If ctx has ended, nothing begins.
func (c *Comm) ready(ctx context.Context, what string) error {
	if err := c.usable(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("allcast: %s was not started: %w", what, err)
	}
	return nil
}

// byRack groups the ranks by the names of their racks, in the order of their first
// ranks.
func (c *Comm) byRack() (groups [][]int) {
	at := map[string]int{}
	for r, w := range c.members {
		rack := c.job.Racks[w]
		i, known := at[rack]
		if !known {
			i = len(groups)
			at[rack] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], r)
	}
	return groups
}

// wait is the second half of a blocking call. If ctx ends before the operation has completed, wait
// aborts the communicator, and returns once nothing can touch the buffers any more.
func (c *Comm) wait(ctx context.Context, r *Request, err error) error {
	if err != nil {
		return err
	}
	r.req.Wait(ctx)
	if !r.req.Over() {
		r.req.Cancel()
	}
	err = r.Err()
	var failed *RankError
	if ctx.Err() == nil || !errors.Is(err, ErrAborted) || !errors.As(err, &failed) {
		return err
	}
	failed = failed.because(ctx.Err())
	c.cancelled.CompareAndSwap(nil, failed)
	return failed
}

// StartBroadcast begins to send root's buf to everybody's; all have the same
// length.
func (c *Comm) StartBroadcast(buf []byte, root int, opts ...CallOption) (*Request, error) {
	return c.start(engine.Call{Kind: wire.Broadcast, Root: root, Recv: buf}, int64(len(buf)), opts)
}

// Broadcast sends root's buf to everybody's; all have the same length.
func (c *Comm) Broadcast(ctx context.Context, buf []byte, root int, opts ...CallOption) error {
	if err := c.ready(ctx, "broadcast"); err != nil {
		return err
	}
	r, err := c.StartBroadcast(buf, root, opts...)
	return c.wait(ctx, r, err)
}

// StartAllgather begins to collect everybody's send in everybody's recv, in the
// order of ranks; see Allgather.
func (c *Comm) StartAllgather(send, recv []byte, opts ...CallOption) (*Request, error) {
	if c == nil {
		return nil, invalid("a nil communicator")
	}
	if len(recv)%len(c.members) != 0 {
		return nil, invalid("a receive buffer of %d bytes cannot be divided among %d ranks", len(recv), len(c.members))
	}
	counts := make([]int, len(c.members))
	for i := range counts {
		counts[i] = len(recv) / len(counts)
	}
	return c.StartAllgatherv(send, recv, counts, opts...)
}

// Allgather collects everybody's send in everybody's recv, in the order of ranks.
// recv is Size times as long as send. If send is nil, or is our part of recv, it
// works in place.
func (c *Comm) Allgather(ctx context.Context, send, recv []byte, opts ...CallOption) error {
	if err := c.ready(ctx, "allgather"); err != nil {
		return err
	}
	r, err := c.StartAllgather(send, recv, opts...)
	return c.wait(ctx, r, err)
}

// StartAllgatherv begins an Allgather of blocks that differ in size; see
// Allgatherv.
func (c *Comm) StartAllgatherv(send, recv []byte, counts []int, opts ...CallOption) (*Request, error) {
	k := engine.Call{Kind: wire.Allgather, Send: send, Recv: recv, Counts: make([]int64, len(counts))}
	var most int64
	for i, n := range counts {
		k.Counts[i] = int64(n)
		most = max(most, int64(n))
	}
	return c.start(k, most, opts)
}

// Allgatherv is an Allgather to which rank i contributes counts[i] bytes. All ranks
// give the same counts.
func (c *Comm) Allgatherv(ctx context.Context, send, recv []byte, counts []int, opts ...CallOption) error {
	if err := c.ready(ctx, "allgather"); err != nil {
		return err
	}
	r, err := c.StartAllgatherv(send, recv, counts, opts...)
	return c.wait(ctx, r, err)
}

// StartReduceScatter begins to combine everybody's send and to leave each rank its
// block; see ReduceScatter.
func (c *Comm) StartReduceScatter(send, recv []byte, t DataType, op ReduceOp, opts ...CallOption) (*Request, error) {
	if c == nil {
		return nil, invalid("a nil communicator")
	}
	if len(send) != len(recv)*len(c.members) {
		return nil, invalid("a send buffer of %d bytes for a receive buffer of %d: want %d times as many",
			len(send), len(recv), len(c.members))
	}
	k := engine.Call{
		Kind: wire.ReduceScatter, Send: send, Recv: recv, Counts: make([]int64, len(c.members)),
		Type: reduce.Type(t), Op: reduce.Op(op),
	}
	for i := range k.Counts {
		k.Counts[i] = int64(len(recv))
	}
	return c.start(k, int64(len(recv)), opts)
}

// ReduceScatter combines everybody's send, element by element, and leaves block i
// of the result to rank i. send is Size times as long as recv, which may be our
// part of it. Otherwise send is not changed.
func (c *Comm) ReduceScatter(
	ctx context.Context, send, recv []byte, t DataType, op ReduceOp, opts ...CallOption,
) error {
	if err := c.ready(ctx, "reduce-scatter"); err != nil {
		return err
	}
	r, err := c.StartReduceScatter(send, recv, t, op, opts...)
	return c.wait(ctx, r, err)
}

// StartAllreduce begins to combine everybody's send in everybody's recv; see
// Allreduce.
func (c *Comm) StartAllreduce(send, recv []byte, t DataType, op ReduceOp, opts ...CallOption) (*Request, error) {
	k := engine.Call{Kind: wire.Allreduce, Send: send, Recv: recv, Type: reduce.Type(t), Op: reduce.Op(op)}
	return c.start(k, int64(len(recv)), opts)
}

// Allreduce combines everybody's send, element by element, in everybody's recv,
// with the same bits on all ranks. If send is nil or the same as recv, it works in
// place. Otherwise send is not changed.
func (c *Comm) Allreduce(ctx context.Context, send, recv []byte, t DataType, op ReduceOp, opts ...CallOption) error {
	if err := c.ready(ctx, "allreduce"); err != nil {
		return err
	}
	r, err := c.StartAllreduce(send, recv, t, op, opts...)
	return c.wait(ctx, r, err)
}

// StartBarrier begins a Barrier.
func (c *Comm) StartBarrier(opts ...CallOption) (*Request, error) {
	return c.start(engine.Call{Kind: wire.Barrier}, 0, opts)
}

// Barrier returns when all ranks have called it.
func (c *Comm) Barrier(ctx context.Context, opts ...CallOption) error {
	if err := c.ready(ctx, "barrier"); err != nil {
		return err
	}
	r, err := c.StartBarrier(opts...)
	return c.wait(ctx, r, err)
}
