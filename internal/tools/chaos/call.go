//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/allcast/allcast"
)

// testCall is one call: its functions, its buffers, and the check of its results.
type testCall struct {
	call   func(ctx context.Context) error
	start  func() (*allcast.Request, error) // nonblocking variant of call, for the calls of bursts
	verify func() error
	bufs   [][]byte
	alloc  bool // whether bufs are from Alloc

	message bool // whether it is a Send or a Recv, which can be repeated if it had no match
}

// prepare prepares a call. nth distinguishes the calls of a burst.
func (r *rank) prepare(c comm, st step, nth uint64) (*testCall, error) {
	id := r.call<<2 | nth
	opts := []allcast.CallOption{allcast.WithAlgorithm(st.algo)}
	if st.algo == "mcast" {
		opts = append(opts, allcast.WithChains(st.chains), allcast.WithSubgroups(min(st.trees, r.trees)))
	}
	if st.chunk > 0 {
		opts = append(opts, allcast.WithChunk(st.chunk))
	}
	f := &testCall{alloc: st.alloc}
	var err error
	switch st.do {
	case "broadcast":
		err = r.broadcast(f, c, st, id, opts)
	case "allgather":
		err = r.gather(f, c, evenly(c.Size(), st.size), id)
		f.start = func() (*allcast.Request, error) { return c.StartAllgather(f.bufs[0], f.bufs[1], opts...) }
		f.call = func(ctx context.Context) error { return c.Allgather(ctx, f.bufs[0], f.bufs[1], opts...) }
	case "allgatherv":
		counts := unevenly(c.Size(), st.size, st.root)
		err = r.gather(f, c, counts, id)
		f.call = func(ctx context.Context) error { return c.Allgatherv(ctx, f.bufs[0], f.bufs[1], counts, opts...) }
	case "reduce", "reduce-scatter", "reduce-scatterv", "allreduce":
		err = r.reduce(f, c, st, id, opts)
	case "gather", "gatherv":
		err = r.gatherToRoot(f, c, st, id, opts)
	case "scatter", "scatterv":
		err = r.scatter(f, c, st, id, opts)
	case "alltoall", "alltoallv":
		err = r.alltoall(f, c, st, id, opts)
	case "broadcast-coalesced", "allgather-coalesced":
		err = r.coalesced(f, c, st, id, opts)
	case "barrier":
		f.call = func(ctx context.Context) error { return c.Barrier(ctx) }
		f.verify = func() error { return nil }
	}
	return f, err
}

// buffer adds a buffer to a call.
func (r *rank) buffer(f *testCall, n int) ([]byte, error) {
	b := make([]byte, 0)
	if !f.alloc {
		b = make([]byte, n)
	} else if n > 0 {
		var err error
		if b, err = r.world.Alloc(n); err != nil {
			return nil, err
		}
	}
	f.bufs = append(f.bufs, b)
	return b, nil
}

func (r *rank) broadcast(f *testCall, c comm, st step, id uint64, opts []allcast.CallOption) error {
	root := int(st.root % uint64(c.Size()))
	want := r.script.pattern(id, c.WorldRank(root))
	buf, err := r.buffer(f, st.size)
	if err != nil {
		return err
	}
	if c.Rank() == root {
		want.fill(buf)
	}
	f.call = func(ctx context.Context) error { return c.Broadcast(ctx, buf, root, opts...) }
	f.verify = func() error { return want.check(buf) }
	return nil
}

// gather prepares the send and the receive buffer of an Allgather.
func (r *rank) gather(f *testCall, c comm, counts []int, id uint64) error {
	all := 0
	for _, n := range counts {
		all += n
	}
	mine, err := r.buffer(f, counts[c.Rank()])
	if err != nil {
		return err
	}
	r.script.pattern(id, c.WorldRank(c.Rank())).fill(mine)
	got, err := r.buffer(f, all)
	f.verify = func() error {
		at := 0
		for i, n := range counts {
			if err := r.script.pattern(id, c.WorldRank(i)).check(got[at : at+n]); err != nil {
				return err
			}
			at += n
		}
		return nil
	}
	return err
}

// reduce adds unsigned integers, whose sum does not depend on the order.
func (r *rank) reduce(f *testCall, c comm, st step, id uint64, opts []allcast.CallOption) error {
	root := int(st.root % uint64(c.Size()))
	counts := evenly(c.Size(), st.size/8)
	if st.do == "reduce-scatterv" {
		counts = unevenly(c.Size(), st.size/8, st.root)
	}
	n, at := 0, 0 // bytes of the sum, and where the part of this rank begins
	for i := range counts {
		counts[i] *= 8
		if i == c.Rank() {
			at = n
		}
		n += counts[i]
	}
	part := counts[c.Rank()]
	switch {
	case st.do == "allreduce" || st.do == "reduce" && c.Rank() == root:
		part, at = n, 0
	case st.do == "reduce":
		part = 0
	}
	mine, err := r.buffer(f, n)
	if err != nil {
		return err
	}
	got, err := r.buffer(f, part)
	if err != nil {
		return err
	}
	r.script.pattern(id, c.WorldRank(c.Rank())).fill(mine)
	const u64, sum = allcast.Uint64, allcast.Sum
	f.call = func(ctx context.Context) error {
		switch st.do {
		case "reduce":
			return c.Reduce(ctx, mine, got, u64, sum, root, opts...)
		case "reduce-scatter":
			return c.ReduceScatter(ctx, mine, got, u64, sum, opts...)
		case "reduce-scatterv":
			return c.ReduceScatterv(ctx, mine, got, counts, u64, sum, opts...)
		}
		return c.Allreduce(ctx, mine, got, u64, sum, opts...)
	}
	f.verify = func() error {
		sum := make([]byte, n)
		for i := range c.Size() {
			p := r.script.pattern(id, c.WorldRank(i))
			for k := 0; k < n; k += 8 {
				binary.LittleEndian.PutUint64(sum[k:], binary.LittleEndian.Uint64(sum[k:])+p.next())
			}
		}
		if !bytes.Equal(got, sum[at:at+part]) {
			return errors.New("a sum is wrong")
		}
		return r.script.pattern(id, c.WorldRank(c.Rank())).check(mine)
	}
	return nil
}

// marker is the byte that a rank writes to buffers whose call has returned.
const marker = 0xEE

// finish releases the buffers of a call that has returned, such that any later access is detected:
// memory of Alloc is unmapped, and other memory holds markers that checkMarkers inspects later.
func (r *rank) finish(f *testCall) error {
	for _, b := range f.bufs {
		if len(b) == 0 {
			continue
		}
		if f.alloc {
			if err := r.world.Free(b); err != nil {
				return fmt.Errorf("%w: %w", errContract, err)
			}
		} else if r.script.mode.cancels() {
			for i := range b {
				b[i] = marker
			}
			r.returned = append(r.returned, b)
		}
	}
	f.bufs = nil
	return nil
}

// checkMarkers inspects buffers whose calls have returned, and forgets the oldest.
func (r *rank) checkMarkers() error {
	for _, b := range r.returned {
		if bytes.Count(b, []byte{marker}) != len(b) {
			return errors.New("a buffer was written after its call had returned")
		}
	}
	const keep = 8
	r.returned = append([][]byte(nil), r.returned[max(0, len(r.returned)-keep):]...)
	return nil
}

func evenly(ranks, size int) []int {
	counts := make([]int, ranks)
	for i := range counts {
		counts[i] = size / ranks
	}
	return counts
}

// unevenly gives some ranks nothing, and some ranks more than others.
func unevenly(ranks, size int, random uint64) []int {
	counts := evenly(ranks, size)
	for i := range counts {
		counts[i] = counts[i] / 3 * int(random>>(2*i%62)&3)
	}
	return counts
}
