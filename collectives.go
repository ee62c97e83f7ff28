package allcast

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/wire"
)

// A CallOption changes how one operation runs. All ranks must use the same options, except WithFactor and
// WithTimeout.
type CallOption func(*callOptions)

// callOptions is the call that CallOptions modify before it starts.
type callOptions struct{ engine.Call }

// WithAlgorithm selects the algorithm: one of Algorithms, or "auto".
func WithAlgorithm(name string) CallOption { return func(c *callOptions) { c.Algo = name } }

// WithChains lets n ranks multicast at once. The default is 1, 2 or all ranks, whichever the benchmark of Join found
// to be the fastest. Values above the number of sending ranks are clamped.
func WithChains(n int) CallOption { return func(c *callOptions) { c.Chains = n } }

// WithChainsByRack forms one chain per rack (Options.Rack), so that a rank passes its turn to a rank
// nearby.
func WithChainsByRack() CallOption { return func(c *callOptions) { c.Racks = true } }

// WithSubgroups spreads the operation over n of the Options.Subgroups multicast groups (default: all).
func WithSubgroups(n int) CallOption { return func(c *callOptions) { c.Subgroups = n } }

// WithChunk sets the payload of a datagram in bytes. Values above the limit of the network are clamped.
func WithChunk(bytes int) CallOption { return func(c *callOptions) { c.Chunk = bytes } }

// WithSegment sets the size in bytes of the pieces that pipelined point-to-point algorithms send.
func WithSegment(bytes int64) CallOption { return func(c *callOptions) { c.Segment = bytes } }

// WithRadix sets the radix of the knomial Broadcast (default 4).
func WithRadix(k int) CallOption { return func(c *callOptions) { c.Radix = k } }

// WithFactor sets the factor by which this rank multiplies its input to a PremultipliedSum (default 1). Ranks may
// use different factors, and other operators ignore them.
func WithFactor(factor float64) CallOption { return func(c *callOptions) { c.Factor = factor } }

// WithTimeout limits the time of the operation on this rank, from its start on. Time that the operation waits for
// earlier ones counts. Options.Deadline applies too, and the shorter limit counts. Ranks may use different
// timeouts, and 0 means none.
//
// When the time has passed, the operation fails with ErrDeadline. The error names the rank that it waits for, and
// no rank if all ranks work on it. The communicator is then broken on all ranks, as after any other failure.
// Send and Recv document what a timeout does to them.
func WithTimeout(d time.Duration) CallOption { return func(c *callOptions) { c.Timeout = d } }

// apply applies the options of a call.
func (k *callOptions) apply(opts []CallOption) error {
	k.Factor = 1
	for _, o := range opts {
		o(k)
	}
	if k.Chains < 0 || k.Subgroups < 0 || k.Chunk < 0 || k.Segment < 0 || k.Radix < 0 || k.Timeout < 0 {
		return invalid("chains %d, subgroups %d, chunk %d, segment %d, radix %d, timeout %v: none may be negative",
			k.Chains, k.Subgroups, k.Chunk, k.Segment, k.Radix, k.Timeout)
	}
	return nil
}

// start starts a call. The number of bytes affects the choice of the algorithm.
func (c *Comm) start(call engine.Call, bytes int64, opts []CallOption) (*Request, error) {
	if err := c.checkUsable(); err != nil {
		return nil, err
	}
	k := callOptions{call}
	if err := k.apply(opts); err != nil {
		return nil, err
	}
	how, err := c.choose(k.Kind, k.Algo, bytes)
	if err != nil {
		return nil, err
	}
	if k.Chains > 0 || k.Racks {
		how.chains = k.Chains
	}
	c.logChoice(&k.Call, how, bytes)
	k.Algo, k.Chains = how.algo, how.chains
	if k.Racks {
		k.Groups = c.ranksByRack()
	}
	r, err := c.job.Start(c.id, k.Call)
	if err != nil {
		return nil, exportError(err, c.members)
	}
	return &Request{req: r, comm: c}, nil
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
		<-r.req.Done()
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

// block runs a blocking call: it starts the operation and waits for it.
func (c *Comm) block(ctx context.Context, operation string, start func() (*Request, error)) error {
	if err := c.checkStart(ctx, operation); err != nil {
		return err
	}
	r, err := start()
	return c.wait(ctx, r, err)
}

// StartBroadcast starts a Broadcast.
func (c *Comm) StartBroadcast(buf []byte, root int, opts ...CallOption) (*Request, error) {
	return c.start(engine.Call{Kind: wire.Broadcast, Root: root, Recv: buf}, int64(len(buf)), opts)
}

// Broadcast copies buf of rank root to buf of all other ranks. It has the same length on all ranks. When the
// root of a small Broadcast returns, other ranks may not have made the call yet.
func (c *Comm) Broadcast(ctx context.Context, buf []byte, root int, opts ...CallOption) error {
	return c.block(ctx, "broadcast", func() (*Request, error) { return c.StartBroadcast(buf, root, opts...) })
}

// equalBlocks returns the counts of Size blocks of n bytes each.
func (c *Comm) equalBlocks(n int) []int64 { return slices.Repeat([]int64{int64(n)}, len(c.members)) }

// divide returns the size of a block of a buffer of n bytes that holds one block per rank.
func (c *Comm) divide(n int, buffer string) (int, error) {
	switch {
	case c == nil:
		return 0, invalid("a nil communicator")
	case n%len(c.members) != 0:
		return 0, invalid("a %s buffer of %d bytes cannot be divided among %d ranks", buffer, n, len(c.members))
	}
	return n / len(c.members), nil
}

// int64s converts counts, and returns the largest.
func int64s(counts []int) (converted []int64, largest int64) {
	converted = make([]int64, len(counts))
	for i, n := range counts {
		converted[i] = int64(n)
		largest = max(largest, int64(n))
	}
	return converted, largest
}

// StartAllgather starts an Allgather.
func (c *Comm) StartAllgather(send, recv []byte, opts ...CallOption) (*Request, error) {
	n, err := c.divide(len(recv), "receive")
	if err != nil {
		return nil, err
	}
	return c.start(engine.Call{Kind: wire.Allgather, Send: send, Recv: recv, Counts: c.equalBlocks(n)}, int64(n), opts)
}

// Allgather copies send of all ranks to recv of all ranks, in rank order. recv is Size times as long as
// send. If send is nil or this rank's block of recv, the operation works in place.
func (c *Comm) Allgather(ctx context.Context, send, recv []byte, opts ...CallOption) error {
	return c.block(ctx, "allgather", func() (*Request, error) { return c.StartAllgather(send, recv, opts...) })
}

// StartAllgatherv starts an Allgatherv.
func (c *Comm) StartAllgatherv(send, recv []byte, counts []int, opts ...CallOption) (*Request, error) {
	sizes, largest := int64s(counts)
	return c.start(engine.Call{Kind: wire.Allgather, Send: send, Recv: recv, Counts: sizes}, largest, opts)
}

// Allgatherv is an Allgather in which rank i contributes counts[i] bytes. All ranks pass the same counts.
func (c *Comm) Allgatherv(ctx context.Context, send, recv []byte, counts []int, opts ...CallOption) error {
	return c.block(ctx, "allgather", func() (*Request, error) { return c.StartAllgatherv(send, recv, counts, opts...) })
}

// StartGather starts a Gather.
func (c *Comm) StartGather(send, recv []byte, root int, opts ...CallOption) (*Request, error) {
	n := len(send)
	if send == nil && c != nil && root == c.rank {
		var err error
		if n, err = c.divide(len(recv), "receive"); err != nil {
			return nil, err
		}
	}
	if c == nil {
		return nil, invalid("a nil communicator")
	}
	k := engine.Call{Kind: wire.Gather, Root: root, Send: send, Recv: recv, Counts: c.equalBlocks(n)}
	return c.start(k, int64(n), opts)
}

// Gather copies send of all ranks to recv of rank root, in rank order. send has the same length on all ranks,
// and recv of the root is Size times as long. Other ranks may pass nil for recv. The root may pass nil, or its
// block of recv, for send if the block is there already.
func (c *Comm) Gather(ctx context.Context, send, recv []byte, root int, opts ...CallOption) error {
	return c.block(ctx, "gather", func() (*Request, error) { return c.StartGather(send, recv, root, opts...) })
}

// StartGatherv starts a Gatherv.
func (c *Comm) StartGatherv(send, recv []byte, counts []int, root int, opts ...CallOption) (*Request, error) {
	return c.startPrivate(engine.Call{Kind: wire.Gatherv, Root: root, Send: send, Recv: recv}, counts, len(send), opts)
}

// Gatherv is a Gather in which rank i contributes counts[i] bytes. Only the root needs counts, and other ranks
// may pass nil. If a rank sends a different number of bytes than the root expects, the call fails with
// ErrMismatch on both; other ranks may have completed it.
func (c *Comm) Gatherv(
	ctx context.Context, send, recv []byte, counts []int, root int, opts ...CallOption,
) error {
	return c.block(ctx, "gatherv", func() (*Request, error) {
		return c.StartGatherv(send, recv, counts, root, opts...)
	})
}

// startPrivate starts a Gatherv or a Scatterv: the root knows all counts, and other ranks their own.
func (c *Comm) startPrivate(k engine.Call, counts []int, own int, opts []CallOption) (*Request, error) {
	if c == nil {
		return nil, invalid("a nil communicator")
	}
	if c.rank == k.Root {
		k.Counts, _ = int64s(counts)
	} else {
		k.Counts = make([]int64, len(c.members))
		k.Counts[c.rank] = int64(own)
	}
	return c.start(k, 0, opts)
}

// StartScatter starts a Scatter.
func (c *Comm) StartScatter(send, recv []byte, root int, opts ...CallOption) (*Request, error) {
	n := len(recv)
	if recv == nil && c != nil && root == c.rank {
		var err error
		if n, err = c.divide(len(send), "send"); err != nil {
			return nil, err
		}
	}
	if c == nil {
		return nil, invalid("a nil communicator")
	}
	k := engine.Call{Kind: wire.Scatter, Root: root, Send: send, Recv: recv, Counts: c.equalBlocks(n)}
	return c.start(k, int64(n), opts)
}

// Scatter copies block i of send of rank root to recv of rank i. recv has the same length on all ranks, and
// send of the root is Size times as long. Other ranks may pass nil for send. The root may pass nil, or its
// block of send, for recv if the block is to stay there.
func (c *Comm) Scatter(ctx context.Context, send, recv []byte, root int, opts ...CallOption) error {
	return c.block(ctx, "scatter", func() (*Request, error) { return c.StartScatter(send, recv, root, opts...) })
}

// StartScatterv starts a Scatterv.
func (c *Comm) StartScatterv(send, recv []byte, counts []int, root int, opts ...CallOption) (*Request, error) {
	return c.startPrivate(engine.Call{Kind: wire.Scatterv, Root: root, Send: send, Recv: recv}, counts, len(recv), opts)
}

// Scatterv is a Scatter in which rank i receives counts[i] bytes. Only the root needs counts, and other ranks
// may pass nil. If a rank expects a different number of bytes than the root has for it, the call fails with
// ErrMismatch on both; other ranks may have completed it.
func (c *Comm) Scatterv(
	ctx context.Context, send, recv []byte, counts []int, root int, opts ...CallOption,
) error {
	return c.block(ctx, "scatterv", func() (*Request, error) {
		return c.StartScatterv(send, recv, counts, root, opts...)
	})
}

// StartAlltoall starts an Alltoall.
func (c *Comm) StartAlltoall(send, recv []byte, opts ...CallOption) (*Request, error) {
	n, err := c.divide(len(recv), "receive")
	if err != nil {
		return nil, err
	}
	return c.start(engine.Call{Kind: wire.Alltoall, Send: send, Recv: recv, Counts: c.equalBlocks(n)}, int64(n), opts)
}

// Alltoall copies block i of send of rank j to block j of recv of rank i. The buffers are equally long on all
// ranks, and hold one block per rank. If send is nil or recv, the operation works in place, at the cost of a
// copy.
func (c *Comm) Alltoall(ctx context.Context, send, recv []byte, opts ...CallOption) error {
	return c.block(ctx, "alltoall", func() (*Request, error) { return c.StartAlltoall(send, recv, opts...) })
}

// StartAlltoallv starts an Alltoallv.
func (c *Comm) StartAlltoallv(
	send, recv []byte, sendCounts, recvCounts []int, opts ...CallOption,
) (*Request, error) {
	k := engine.Call{Kind: wire.Alltoallv, Send: send, Recv: recv}
	k.Counts, _ = int64s(sendCounts)
	k.Receives, _ = int64s(recvCounts)
	return c.start(k, 0, opts)
}

// Alltoallv is an Alltoall in which this rank sends sendCounts[i] bytes to rank i and receives recvCounts[i]
// bytes from it. If two ranks disagree about the bytes between them, the call fails with ErrMismatch on
// both. If send is nil, sendCounts and recvCounts are equal.
func (c *Comm) Alltoallv(
	ctx context.Context, send, recv []byte, sendCounts, recvCounts []int, opts ...CallOption,
) error {
	return c.block(ctx, "alltoallv", func() (*Request, error) {
		return c.StartAlltoallv(send, recv, sendCounts, recvCounts, opts...)
	})
}

// StartReduce starts a Reduce.
func (c *Comm) StartReduce(
	send, recv []byte, t DataType, op ReduceOp, root int, opts ...CallOption,
) (*Request, error) {
	k := engine.Call{
		Kind: wire.Reduce, Root: root, Send: send, Recv: recv, Type: reduce.Type(t), Op: reduce.Op(op),
	}
	n := len(send)
	if send == nil {
		n = len(recv) // in place
	}
	return c.start(k, int64(n), opts)
}

// Reduce combines send of all ranks, element by element, and stores the result in recv of rank root. Other
// ranks may pass nil for recv. The root may pass nil or recv for send if its input is in recv already.
func (c *Comm) Reduce(
	ctx context.Context, send, recv []byte, t DataType, op ReduceOp, root int, opts ...CallOption,
) error {
	return c.block(ctx, "reduce", func() (*Request, error) { return c.StartReduce(send, recv, t, op, root, opts...) })
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
		Kind: wire.ReduceScatter, Send: send, Recv: recv, Counts: c.equalBlocks(len(recv)),
		Type: reduce.Type(t), Op: reduce.Op(op),
	}
	return c.start(k, int64(len(recv)), opts)
}

// ReduceScatter combines send of all ranks, element by element, and stores block i of the result in recv of
// rank i. send is Size times as long as recv. recv may be this rank's block of send; the rest of send
// does not change.
func (c *Comm) ReduceScatter(
	ctx context.Context, send, recv []byte, t DataType, op ReduceOp, opts ...CallOption,
) error {
	return c.block(ctx, "reduce-scatter", func() (*Request, error) {
		return c.StartReduceScatter(send, recv, t, op, opts...)
	})
}

// StartReduceScatterv starts a ReduceScatterv.
func (c *Comm) StartReduceScatterv(
	send, recv []byte, counts []int, t DataType, op ReduceOp, opts ...CallOption,
) (*Request, error) {
	k := engine.Call{Kind: wire.ReduceScatter, Send: send, Recv: recv, Type: reduce.Type(t), Op: reduce.Op(op)}
	var largest int64
	k.Counts, largest = int64s(counts)
	return c.start(k, largest, opts)
}

// ReduceScatterv is a ReduceScatter in which rank i receives counts[i] bytes of the result. All ranks pass the
// same counts.
func (c *Comm) ReduceScatterv(
	ctx context.Context, send, recv []byte, counts []int, t DataType, op ReduceOp, opts ...CallOption,
) error {
	return c.block(ctx, "reduce-scatter", func() (*Request, error) {
		return c.StartReduceScatterv(send, recv, counts, t, op, opts...)
	})
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
	return c.block(ctx, "allreduce", func() (*Request, error) { return c.StartAllreduce(send, recv, t, op, opts...) })
}

// StartBarrier starts a Barrier.
func (c *Comm) StartBarrier(opts ...CallOption) (*Request, error) {
	return c.start(engine.Call{Kind: wire.Barrier}, 0, opts)
}

// Barrier returns when all ranks have called it.
func (c *Comm) Barrier(ctx context.Context, opts ...CallOption) error {
	return c.block(ctx, "barrier", func() (*Request, error) { return c.StartBarrier(opts...) })
}
