package allcast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
)

// Invalid arguments of exchanges, messages and coalesced operations start nothing.
func TestBadExchanges(t *testing.T) {
	f32, sum := allcast.Float32, allcast.Sum
	allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		b, other := make([]byte, 8), make([]byte, 8)
		me := c.Rank()
		_, recvErr := c.Recv(ctx, b, 2, 0)
		_, selfErr := c.Recv(ctx, b, me, 0)
		_, sourceErr := c.Recv(ctx, b, -2, 0)
		_, tagErr := c.Recv(ctx, b, allcast.AnySource, -1)
		for what, err := range map[string]error{
			"gather: root":                   c.Gather(ctx, b, b, 2),
			"gather: negative root":          c.Gather(ctx, b, b, -1),
			"gather: receive buffer":         c.Gather(ctx, b[:3], other, me),
			"gather: in place, no division":  c.Gather(ctx, nil, b[:7], me),
			"gatherv: no counts":             c.Gatherv(ctx, b, other, nil, me),
			"gatherv: too few counts":        c.Gatherv(ctx, b, other, []int{8}, me),
			"gatherv: too many counts":       c.Gatherv(ctx, b[:4], other, []int{4, 4, 0}, me),
			"gatherv: negative count":        c.Gatherv(ctx, b[:4], other, []int{12, -4}, me),
			"gatherv: overflow":              c.Gatherv(ctx, b, other, []int{math.MaxInt, math.MaxInt}, me),
			"gatherv: own count":             c.Gatherv(ctx, b[:3], other, []int{4, 4}, me),
			"scatter: root":                  c.Scatter(ctx, b, b, 2),
			"scatter: send buffer":           c.Scatter(ctx, b[:7], other[:4], me),
			"scatter: in place, no division": c.Scatter(ctx, b[:7], nil, me),
			"scatter: overlap":               c.Scatter(ctx, b, b[2:6], me),
			"scatterv: no counts":            c.Scatterv(ctx, b, other, nil, me),
			"scatterv: negative count":       c.Scatterv(ctx, b, other[:4], []int{12, -4}, me),
			"alltoall: no division":          c.Alltoall(ctx, b[:7], other[:7]),
			"alltoall: sizes":                c.Alltoall(ctx, b[:6], other),
			"alltoall: overlap":              c.Alltoall(ctx, b[:4], b[2:6]),
			"alltoallv: no counts":           c.Alltoallv(ctx, b, other, nil, nil),
			"alltoallv: own count":           c.Alltoallv(ctx, b[:2], other[:4], []int{1, 1}, []int{2, 2}),
			"alltoallv: in place":            c.Alltoallv(ctx, nil, other[:3], []int{1, 1}, []int{1, 1}),
			"alltoallv: negative count":      c.Alltoallv(ctx, b, other, []int{9, -1}, []int{4, 4}),
			"reduce: root":                   c.Reduce(ctx, b, other, f32, sum, 2),
			"reduce: sizes":                  c.Reduce(ctx, b, other[:4], f32, sum, me),
			"reduce: no input":               c.Reduce(ctx, nil, other, f32, sum, 1-me),
			"reduce: partial element":        c.Reduce(ctx, b[:6], other[:6], f32, sum, me),
			"reduce: no type":                c.Reduce(ctx, b, other, 0, sum, me),
			"reduce: overlap":                c.Reduce(ctx, b[:4], b[2:6], allcast.Uint8, sum, me),
			"reduce-scatterv: no counts":     c.ReduceScatterv(ctx, b, other[:4], nil, f32, sum),
			"reduce-scatterv: elements":      c.ReduceScatterv(ctx, b, other[:4], []int{2, 6}, f32, sum),
			"broadcast coalesced: root":      c.BroadcastCoalesced(ctx, [][]byte{b}, 2),
			"allgather coalesced: sizes":     c.AllgatherCoalesced(ctx, [][]byte{b}, [][]byte{other}),
			"allgather coalesced: buffers":   c.AllgatherCoalesced(ctx, [][]byte{b}, nil),
			"recv: rank":                     recvErr,
			"recv: this rank":                selfErr,
			"recv: source":                   sourceErr,
			"recv: tag":                      tagErr,
		} {
			if !errors.Is(err, allcast.ErrInvalid) {
				return fmt.Errorf("%s: got %v, want ErrInvalid", what, err)
			}
		}
		return c.Barrier(ctx)
	})
}

// No method needs a communicator to return an error.
func TestNilComm(t *testing.T) {
	var c *allcast.Comm
	ctx, b, n := t.Context(), make([]byte, 8), []int{8}
	f32, sum := allcast.Float32, allcast.Sum
	start := func(_ *allcast.Request, err error) error { return err }
	_, recv := c.Recv(ctx, b, 0, 0)
	_, split := c.Split(ctx, 0, 0)
	_, dup := c.Dup(ctx)
	_, subset := c.Subset(ctx, []int{0}, "")
	_, shrink := c.Shrink(ctx)
	for i, err := range []error{
		c.Broadcast(ctx, b, 0), c.Allgather(ctx, b, b), c.Allgatherv(ctx, b, b, n), c.Gather(ctx, b, b, 0),
		c.Gather(ctx, nil, b, 0), c.Gatherv(ctx, b, b, n, 0), c.Scatter(ctx, b, b, 0), c.Scatter(ctx, b, nil, 0),
		c.Scatterv(ctx, b, b, n, 0), c.Alltoall(ctx, b, b), c.Alltoallv(ctx, b, b, n, n),
		c.Reduce(ctx, b, b, f32, sum, 0), c.ReduceScatter(ctx, b, b, f32, sum),
		c.ReduceScatterv(ctx, b, b, n, f32, sum), c.Allreduce(ctx, b, b, f32, sum), c.Barrier(ctx),
		c.BroadcastCoalesced(ctx, nil, 0), c.AllgatherCoalesced(ctx, nil, nil), c.Send(ctx, b, 0, 0), recv,
		start(c.StartBroadcast(b, 0)), start(c.StartAllgather(b, b)), start(c.StartAllgatherv(b, b, n)),
		start(c.StartGather(b, b, 0)), start(c.StartGatherv(b, b, n, 0)), start(c.StartScatter(b, b, 0)),
		start(c.StartScatterv(b, b, n, 0)), start(c.StartAlltoall(b, b)), start(c.StartAlltoallv(b, b, n, n)),
		start(c.StartReduce(b, b, f32, sum, 0)), start(c.StartReduceScatter(b, b, f32, sum)),
		start(c.StartReduceScatterv(b, b, n, f32, sum)), start(c.StartAllreduce(b, b, f32, sum)),
		start(c.StartBarrier()), start(c.StartBroadcastCoalesced(nil, 0)), start(c.StartAllgatherCoalesced(nil, nil)),
		start(c.StartSend(b, 0, 0)), start(c.StartRecv(b, 0, 0)), split, dup, subset, shrink, c.Abort(),
	} {
		if !errors.Is(err, allcast.ErrInvalid) {
			t.Errorf("call %d: got %v, want ErrInvalid", i, err)
		}
	}
}

// A rank that is alone gets its own data from every operation, reduced where the operator changes even that.
func TestAlone(t *testing.T) {
	allcasttest.Run(t, 1, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		for _, n := range []int{0, 8, 200_000} {
			in := bytes.Repeat([]byte{7}, n)
			counts := []int{n}
			for what, call := range map[string]func(send, recv []byte) error{
				"allgather":  func(s, r []byte) error { return c.Allgather(ctx, s, r) },
				"gather":     func(s, r []byte) error { return c.Gather(ctx, s, r, 0) },
				"gatherv":    func(s, r []byte) error { return c.Gatherv(ctx, s, r, counts, 0) },
				"scatter":    func(s, r []byte) error { return c.Scatter(ctx, s, r, 0) },
				"scatterv":   func(s, r []byte) error { return c.Scatterv(ctx, s, r, counts, 0) },
				"alltoall":   func(s, r []byte) error { return c.Alltoall(ctx, s, r) },
				"alltoallv":  func(s, r []byte) error { return c.Alltoallv(ctx, s, r, counts, counts) },
				"reduce":     func(s, r []byte) error { return c.Reduce(ctx, s, r, allcast.Uint8, allcast.Average, 0) },
				"rs":         func(s, r []byte) error { return c.ReduceScatter(ctx, s, r, allcast.Uint8, allcast.Xor) },
				"rsv":        func(s, r []byte) error { return c.ReduceScatterv(ctx, s, r, counts, allcast.Uint8, allcast.Min) },
				"allreduce":  func(s, r []byte) error { return c.Allreduce(ctx, s, r, allcast.Uint8, allcast.Product) },
				"ag several": func(s, r []byte) error { return c.AllgatherCoalesced(ctx, [][]byte{s}, [][]byte{r}) },
			} {
				out := make([]byte, n)
				if err := call(in, out); err != nil || !bytes.Equal(in, out) {
					return fmt.Errorf("%s of %d bytes: %v", what, n, err)
				}
				out = bytes.Clone(in)
				if err := call(out, out); err != nil || !bytes.Equal(in, out) { // in place
					return fmt.Errorf("%s of %d bytes in place: %v", what, n, err)
				}
			}
			// Any byte but 0 is true, and a factor applies.
			for _, inPlace := range []bool{false, true} {
				out, floats := make([]byte, n), make([]float32, n)
				send, numbers := in, make([]float32, n)
				for i := range numbers {
					numbers[i], floats[i] = float32(i), float32(i)
				}
				if inPlace {
					copy(out, in)
					send, numbers = nil, nil
				}
				for _, op := range []allcast.ReduceOp{allcast.And, allcast.Or, allcast.Xor} {
					if err := c.Allreduce(ctx, send, out, allcast.Bool, op); err != nil {
						return err
					}
					if !bytes.Equal(out, bytes.Repeat([]byte{1}, n)) {
						return fmt.Errorf("%v of bool: wrong data", op)
					}
				}
				err := allcast.ReduceSlice(ctx, c, numbers, floats, allcast.PremultipliedSum, 0, allcast.WithFactor(0.5))
				if err != nil {
					return err
				}
				for i, x := range floats {
					if x != float32(i)/2 {
						return fmt.Errorf("element %d of a premultiplied sum is %v", i, x)
					}
				}
			}
		}
		// There is no other rank, but a message could still be waited for.
		r, err := c.StartRecv(nil, allcast.AnySource, 0)
		if err != nil {
			return err
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if err := r.Wait(ended); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("recv without senders: %v", err)
		}
		if _, err := c.Subset(ctx, []int{0}, "me"); err != nil {
			return err
		}
		return c.BroadcastCoalesced(ctx, nil, 0)
	})
}
