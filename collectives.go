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

// callOptions is the call that CallOptions modify before it starts.
type callOptions struct{ engine.Call }

// WithAlgorithm selects the algorithm: one of Algorithms, or "auto".
func WithAlgorithm(name string) CallOption { return func(c *callOptions) { c.Algo = name } }

// WithChains lets n ranks multicast at once (default 1). Values above the number of sending ranks are
// clamped.
func WithChains(n int) CallOption { return func(c *callOptions) { c.Chains = n } }

// WithChainsByRack forms one chain per rack (Options.Rack), so that a rank passes its turn to a rank
// nearby.
func WithChainsByRack() CallOption { return func(c *callOptions) { c.Racks = true } }

// WithSubgroups spreads the operation over n of the Options.Subgroups multicast groups (default 1).
func WithSubgroups(n int) CallOption { return func(c *callOptions) { c.Subgroups = n } }

// WithChunk sets the payload of a datagram in bytes. Values above the limit of the network are clamped.
func WithChunk(bytes int) CallOption { return func(c *callOptions) { c.Chunk = bytes } }

// WithSegment sets the size in bytes of the pieces that pipelined point-to-point algorithms send.
func WithSegment(bytes int64) CallOption { return func(c *callOptions) { c.Segment = bytes } }

// WithRadix sets the radix of the knomial Broadcast (default 4).
func WithRadix(k int) CallOption { return func(c *callOptions) { c.Radix = k } }

// start starts a call. The number of bytes affects the choice of the algorithm.
func (c *Comm) start(call engine.Call, bytes int64, opts []CallOption) (*Request, error) {
	if err := c.checkUsable(); err != nil {
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
		k.Groups = c.ranksByRack()
	}
	r, err := c.job.Start(c.id, k.Call)
	if err != nil {
		return nil, exportError(err, c.members)
	}
	return &Request{r, c}, nil
}

// checkUsable returns an error if no call can start on the communicator.
func (c *Comm) checkUsable() error {
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

// checkStart returns an error if a blocking call cannot start. A call whose ctx has ended does not start.
func (c *Comm) checkStart(ctx context.Context, operation string) error {
	if err := c.checkUsable(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("allcast: %s was not started: %w", operation, err)
	}
	return nil
}

// ranksByRack groups the ranks by rack. The first rank of each rack determines the order of the racks.
func (c *Comm) ranksByRack() (groups [][]int) {
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

// wait completes a blocking call. It takes the results of the Start call. If ctx ends before the operation
// completes, wait aborts the communicator and returns once nothing can touch the buffers.
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
	failed = failed.withCause(ctx.Err())
	c.cancelled.CompareAndSwap(nil, failed)
	return failed
}

// StartBroadcast starts a Broadcast.
func (c *Comm) StartBroadcast(buf []byte, root int, opts ...CallOption) (*Request, error) {
	return c.start(engine.Call{Kind: wire.Broadcast, Root: root, Recv: buf}, int64(len(buf)), opts)
}

// Broadcast copies buf of rank root to buf of all other ranks. It has the same length on all ranks.
func (c *Comm) Broadcast(ctx context.Context, buf []byte, root int, opts ...CallOption) error {
	if err := c.checkStart(ctx, "broadcast"); err != nil {
		return err
	}
	r, err := c.StartBroadcast(buf, root, opts...)
	return c.wait(ctx, r, err)
}

// StartAllgather starts an Allgather.
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

// Allgather copies send of all ranks to recv of all ranks, in rank order. recv is Size times as long as
// send. If send is nil or this rank's block of recv, the operation works in place.
func (c *Comm) Allgather(ctx context.Context, send, recv []byte, opts ...CallOption) error {
	if err := c.checkStart(ctx, "allgather"); err != nil {
		return err
	}
	r, err := c.StartAllgather(send, recv, opts...)
	return c.wait(ctx, r, err)
}

// StartAllgatherv starts an Allgatherv.
func (c *Comm) StartAllgatherv(send, recv []byte, counts []int, opts ...CallOption) (*Request, error) {
	k := engine.Call{Kind: wire.Allgather, Send: send, Recv: recv, Counts: make([]int64, len(counts))}
	var largest int64
	for i, n := range counts {
		k.Counts[i] = int64(n)
		largest = max(largest, int64(n))
	}
	return c.start(k, largest, opts)
}

// Allgatherv is an Allgather in which rank i contributes counts[i] bytes. All ranks pass the same counts.
func (c *Comm) Allgatherv(ctx context.Context, send, recv []byte, counts []int, opts ...CallOption) error {
	if err := c.checkStart(ctx, "allgather"); err != nil {
		return err
	}
	r, err := c.StartAllgatherv(send, recv, counts, opts...)
	return c.wait(ctx, r, err)
}

// StartReduceScatter starts a ReduceScatter.
func (c *Comm) StartReduceScatter(send, recv []byte, t DataType, op ReduceOp, opts ...CallOption) (*Request, error) {
	if c == nil {
		return nil, invalid("a nil communicator")
	}
	if len(send) != len(recv)*len(c.members) {
		return nil, invalid("a send buffer of %d bytes and a receive buffer of %d: the first must be %d times as long",
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

// ReduceScatter combines send of all ranks, element by element, and stores block i of the result in recv of
// rank i. send is Size times as long as recv. recv may be this rank's block of send; the rest of send
// does not change.
func (c *Comm) ReduceScatter(
	ctx context.Context, send, recv []byte, t DataType, op ReduceOp, opts ...CallOption,
) error {
	if err := c.checkStart(ctx, "reduce-scatter"); err != nil {
		return err
	}
	r, err := c.StartReduceScatter(send, recv, t, op, opts...)
	return c.wait(ctx, r, err)
}

// StartAllreduce starts an Allreduce.
func (c *Comm) StartAllreduce(send, recv []byte, t DataType, op ReduceOp, opts ...CallOption) (*Request, error) {
	k := engine.Call{Kind: wire.Allreduce, Send: send, Recv: recv, Type: reduce.Type(t), Op: reduce.Op(op)}
	return c.start(k, int64(len(recv)), opts)
}

// Allreduce combines send of all ranks, element by element, and stores the result in recv of all ranks. All
// ranks get the same bits. If send is nil or recv, the operation works in place; otherwise send does not
// change.
func (c *Comm) Allreduce(ctx context.Context, send, recv []byte, t DataType, op ReduceOp, opts ...CallOption) error {
	if err := c.checkStart(ctx, "allreduce"); err != nil {
		return err
	}
	r, err := c.StartAllreduce(send, recv, t, op, opts...)
	return c.wait(ctx, r, err)
}

// StartBarrier starts a Barrier.
func (c *Comm) StartBarrier(opts ...CallOption) (*Request, error) {
	return c.start(engine.Call{Kind: wire.Barrier}, 0, opts)
}

// Barrier returns when all ranks have called it.
func (c *Comm) Barrier(ctx context.Context, opts ...CallOption) error {
	if err := c.checkStart(ctx, "barrier"); err != nil {
		return err
	}
	r, err := c.StartBarrier(opts...)
	return c.wait(ctx, r, err)
}
