package allcast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast"
)

func TestBadCalls(t *testing.T) {
	ranks(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		b := make([]byte, 8)
		for what, err := range map[string]error{
			"root beyond the last rank":     c.Broadcast(ctx, b, 2),
			"negative root":                 c.Broadcast(ctx, b, -1),
			"a block too short":             c.Allgather(ctx, b[:3], b),
			"a buffer that does not divide": c.Allgather(ctx, b[:3], b[:7]),
			"counts for other ranks":        c.Allgatherv(ctx, b[:4], b, []int{4, 4, 0}),
			"a negative count":              c.Allgatherv(ctx, b[:4], b, []int{12, -4}),
			"a sum of another size":         c.ReduceScatter(ctx, b, b, allcast.Float32, allcast.Sum),
			"a sum over another's input":    c.ReduceScatter(ctx, b, b[4*(1-c.Rank()):][:4], allcast.Float32, allcast.Sum),
			"a sum beside its input":        c.Allreduce(ctx, b[:4], b[1:5], allcast.Uint8, allcast.Sum),
			"half an element":               c.Allreduce(ctx, b[:6], b[:6], allcast.Float32, allcast.Sum),
			"no such type":                  c.Allreduce(ctx, b, b, allcast.DataType(99), allcast.Sum),
			"no such algorithm":             c.Broadcast(ctx, b, 0, allcast.WithAlgorithm("carrier-pigeon")),
			"an algorithm of another op":    c.Broadcast(ctx, b, 0, allcast.WithAlgorithm("ring")),
			"negative chains":               c.Broadcast(ctx, b, 0, allcast.WithChains(-1)),
			"a nil communicator":            (*allcast.Comm)(nil).Broadcast(ctx, b, 0),
			"no such reduction":             c.Allreduce(ctx, b, b, allcast.Float32, allcast.ReduceOp(99)),
		} {
			if !errors.Is(err, allcast.ErrInvalid) {
				return fmt.Errorf("%s: got %w, want ErrInvalid", what, err)
			}
		}
		// None of them has begun, so the communicator is as good as before.
		return c.Allgather(ctx, b[:4], b)
	})
}

func TestAfterClose(t *testing.T) {
	ranks(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
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
	ranks(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		b := make([]byte, 1000)
		if c.Rank() == 1 {
			copy(b, pattern(7, 1, len(b)))
			<-late
			return c.Broadcast(ctx, b, 1)
		}
		r, err := c.StartBroadcast(b, 1)
		if err != nil {
			return err
		}
		over, cancel := context.WithCancel(ctx)
		cancel()
		if err := r.Wait(over); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("got %w, want that the context ended", err)
		}
		if err := r.Err(); err != nil {
			return fmt.Errorf("it has not ended, but %w", err)
		}
		close(late) // the other one takes part only now
		if err := r.Wait(ctx); err != nil {
			return err
		}
		if !bytes.Equal(b, pattern(7, 1, len(b))) {
			return errors.New("wrong data")
		}
		return nil
	})
}

func TestWithoutMulticast(t *testing.T) {
	ranks(t, 3, allcast.Options{NoMulticast: true}, func(ctx context.Context, c *allcast.Comm) error {
		b := make([]byte, 1<<20)
		err := c.Broadcast(ctx, b, 0, allcast.WithAlgorithm("mcast"))
		if !errors.Is(err, allcast.ErrNoMulticast) || !strings.Contains(err.Error(), "allcast doctor") {
			return fmt.Errorf("got %w, want ErrNoMulticast and advice", err)
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
	ranks(t, 3, allcast.Options{Tuning: "allgather:4K-inf:linear;allgather:bruck"}, func(ctx context.Context, c *allcast.Comm) error {
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

// TestIPv6 needs no multicast: on loopback only root can route it.
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
			c, err := allcast.JoinHooked(ctx, o, onSocket(l, r))
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
				return
			}
			const n = 100_000
			got := make([]byte, 3*n)
			works, why := c.Multicast()
			if err := errors.Join(c.Allgather(ctx, pattern(1, r, n), got), c.Close()); err != nil || !bytes.Equal(got, gathered(1, 3, n)) {
				t.Errorf("rank %d: %v, data right: %v", r, err, bytes.Equal(got, gathered(1, 3, n)))
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

func TestCloseEndsWhatRuns(t *testing.T) {
	ranks(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		d, err := c.Dup(ctx)
		if err != nil || c.Rank() == 1 {
			return err // takes no part in what follows
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
			// The other one may have been gone first.
			if err := r.Err(); !errors.Is(err, allcast.ErrClosed) && !errors.Is(err, allcast.ErrRankLost) {
				return fmt.Errorf("got %w, want ErrClosed or ErrRankLost", err)
			}
		}
		return nil
	})
}
