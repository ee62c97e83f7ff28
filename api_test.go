package allcast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
	"github.com/allcast/allcast/internal/joinhook"
)

func TestBadCalls(t *testing.T) {
	allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		b := make([]byte, 8)
		others := b[4*(1-c.Rank()):][:4]
		for what, err := range map[string]error{
			"a root beyond the last rank":   c.Broadcast(ctx, b, 2),
			"a negative root":               c.Broadcast(ctx, b, -1),
			"a block that is too short":     c.Allgather(ctx, b[:3], b),
			"a buffer that does not divide": c.Allgather(ctx, b[:3], b[:7]),
			"too many counts":               c.Allgatherv(ctx, b[:4], b, []int{4, 4, 0}),
			"a negative count":              c.Allgatherv(ctx, b[:4], b, []int{12, -4}),
			"a result of the wrong size":    c.ReduceScatter(ctx, b, b, allcast.Float32, allcast.Sum),
			"a result in another block":     c.ReduceScatter(ctx, b, others, allcast.Float32, allcast.Sum),
			"a result that overlaps input":  c.Allreduce(ctx, b[:4], b[1:5], allcast.Uint8, allcast.Sum),
			"a partial element":             c.Allreduce(ctx, b[:6], b[:6], allcast.Float32, allcast.Sum),
			"an unknown type":               c.Allreduce(ctx, b, b, allcast.DataType(99), allcast.Sum),
			"no type":                       c.Allreduce(ctx, b, b, 0, allcast.Sum),
			"no operator":                   c.Allreduce(ctx, b, b, allcast.Float32, 0),
			"bits of floats":                c.Allreduce(ctx, b, b, allcast.BFloat16, allcast.And),
			"a sum of truth values":         c.Allreduce(ctx, b, b, allcast.Bool, allcast.Sum),
			"a premultiplied sum of ints":   c.Allreduce(ctx, b, b, allcast.Int32, allcast.PremultipliedSum),
			"a count beyond the buffer":     allcast.AllgathervSlice(ctx, c, b[:4], b, []int{4, math.MaxInt}),
			"a negative count of elements":  allcast.AllgathervSlice(ctx, c, b[:4], b, []int{12, -4}),
			"an unknown algorithm":          c.Broadcast(ctx, b, 0, allcast.WithAlgorithm("carrier-pigeon")),
			"an algorithm of Allgather":     c.Broadcast(ctx, b, 0, allcast.WithAlgorithm("ring")),
			"negative chains":               c.Broadcast(ctx, b, 0, allcast.WithChains(-1)),
			"a nil communicator":            (*allcast.Comm)(nil).Broadcast(ctx, b, 0),
			"an unknown operator":           c.Allreduce(ctx, b, b, allcast.Float32, allcast.ReduceOp(99)),
		} {
			if !errors.Is(err, allcast.ErrInvalid) {
				return fmt.Errorf("%s: got %w, want ErrInvalid", what, err)
			}
		}
		// No call has started, so the communicator still works.
		return c.Allgather(ctx, b[:4], b)
	})
}

// Errors of invalid calls are one sentence, which names what is wrong and what is valid.
func TestErrorTexts(t *testing.T) {
	allcasttest.Run(t, 1, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		b := make([]byte, 8)
		for want, err := range map[string]error{
			`broadcast has no algorithm "foo": ` +
				"want mcast, binary, binomial, chain, knomial, scatter-allgather or auto": c.Broadcast(
				ctx, b, 0, allcast.WithAlgorithm("foo")),
			`allreduce has no algorithm "mcast": ` +
				"want inc, recursive-doubling, recursive-halving, ring or auto": c.Allreduce(
				ctx, b, b, allcast.Float32, allcast.Sum, allcast.WithAlgorithm("mcast")),
			"unknown element type: it is not set": c.Allreduce(ctx, b, b, 0, allcast.Sum),
			"unknown operator: it is not set":     c.Allreduce(ctx, b, b, allcast.Float32, 0),
			"the operator does not apply to the element type: xor of f32: xor needs integers or bool": c.Allreduce(
				ctx, b, b, allcast.Float32, allcast.Xor),
		} {
			if !errors.Is(err, allcast.ErrInvalid) || err.Error() != "allcast: invalid argument: "+want {
				return fmt.Errorf("got %w, want %s", err, want)
			}
		}
		return nil
	})
}

func TestWorldRankOutOfRange(t *testing.T) {
	allcasttest.Run(t, 2, allcast.Options{}, func(_ context.Context, c *allcast.Comm) error {
		for rank, want := range map[int]int{-1: -1, 0: 0, 1: 1, 2: -1} {
			if got := c.WorldRank(rank); got != want {
				return fmt.Errorf("rank %d has world rank %d, want %d", rank, got, want)
			}
		}
		return nil
	})
}

func TestAfterClose(t *testing.T) {
	allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		sub, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if err := errors.Join(sub.Close(), sub.Close(), c.Close()); err != nil {
			return err
		}
		for _, c := range []*allcast.Comm{c, sub} {
			if err := c.Barrier(ctx); !errors.Is(err, allcast.ErrClosed) {
				return fmt.Errorf("got %w, want ErrClosed", err)
			}
		}
		return nil
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	late := make(chan struct{})
	allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		b := make([]byte, 1000)
		if c.Rank() == 1 {
			copy(b, calltest.Pattern(7, 1, len(b)))
			<-late
			return c.Broadcast(ctx, b, 1)
		}
		r, err := c.StartBroadcast(b, 1)
		if err != nil {
			return err
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if err := r.Wait(ended); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("got %w, want context.Canceled", err)
		}
		if err := r.Err(); err != nil {
			return fmt.Errorf("a running request has the error %w", err)
		}
		close(late) // rank 1 makes its call now
		if err := r.Wait(ctx); err != nil {
			return err
		}
		if !bytes.Equal(b, calltest.Pattern(7, 1, len(b))) {
			return errors.New("wrong data")
		}
		return nil
	})
}

func TestWithoutMulticast(t *testing.T) {
	allcasttest.Run(t, 3, allcast.Options{NoMulticast: true}, func(ctx context.Context, c *allcast.Comm) error {
		b := make([]byte, 1<<20)
		err := c.Broadcast(ctx, b, 0, allcast.WithAlgorithm("mcast"))
		if !errors.Is(err, allcast.ErrNoMulticast) || !strings.Contains(err.Error(), "allcast doctor") {
			return fmt.Errorf("got %w, want ErrNoMulticast with advice", err)
		}
		if works, why := c.Multicast(); works || why == "" {
			return fmt.Errorf("multicast %v, because %q", works, why)
		}
		r, err := c.StartBroadcast(b, 0)
		if err != nil {
			return err
		}
		if a := r.Info().Algorithm; a == "mcast" || a == "" {
			return fmt.Errorf("auto ran %q", a)
		}
		return r.Wait(ctx)
	})
}

func TestTuning(t *testing.T) {
	o := allcast.Options{Tuning: "allgather:4K-inf:linear;allgather:bruck"}
	allcasttest.Run(t, 3, o, func(ctx context.Context, c *allcast.Comm) error {
		for _, tt := range []struct {
			n    int
			want string
		}{{100, "bruck"}, {4096, "linear"}} {
			n, want := tt.n, tt.want
			r, err := c.StartAllgather(make([]byte, n), make([]byte, 3*n))
			if err != nil {
				return err
			}
			if err := r.Wait(ctx); err != nil {
				return err
			}
			if got := r.Info().Algorithm; got != want {
				return fmt.Errorf("%d bytes: %s ran, want %s", n, got, want)
			}
		}
		return nil
	})
}

// TestIPv6 does not require multicast, because only root can route IPv6 multicast on loopback.
func TestIPv6(t *testing.T) {
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skipf("no IPv6 on loopback: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for r := range 3 {
		wg.Go(func() {
			o := allcast.Options{Rank: r, Size: 3, Addr: l.Addr().String(), Logger: slog.New(slog.DiscardHandler)}
			c, err := allcast.Join(joinhook.With(ctx, joinhook.Hooks{Listener: l}), o)
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
				return
			}
			const n = 100_000
			got := make([]byte, 3*n)
			works, why := c.Multicast()
			err = errors.Join(c.Allgather(ctx, calltest.Pattern(1, r, n), got), c.Close())
			if err := calltest.Equal(err, got, calltest.Gathered(1, 3, n)); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
			if r == 0 {
				t.Logf("multicast over IPv6: %v %s", works, why)
			}
		})
	}
	wg.Wait()
}

func TestBadProcessor(t *testing.T) {
	_, err := allcast.Join(t.Context(), allcast.Options{Size: 1, Pin: []int{0, -100}})
	if !errors.Is(err, allcast.ErrOptions) {
		t.Errorf("got %v, want ErrOptions", err)
	}
}

func TestCloseEndsRunningOperations(t *testing.T) {
	allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		d, err := c.Dup(ctx)
		if err != nil || c.Rank() == 1 {
			return err // rank 1 does not start the operations
		}
		p2p, err := d.StartBarrier()
		if err != nil {
			return err
		}
		mcast, err := d.StartBroadcast(make([]byte, 100_000), 0, allcast.WithAlgorithm("mcast"))
		if err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
		for _, r := range []*allcast.Request{p2p, mcast} {
			<-r.Done()
			// Rank 1 may have left the job first.
			if err := r.Err(); !errors.Is(err, allcast.ErrClosed) && !errors.Is(err, allcast.ErrRankLost) {
				return fmt.Errorf("got %w, want ErrClosed or ErrRankLost", err)
			}
		}
		return nil
	})
}
