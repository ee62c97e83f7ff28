package allcast_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
)

// A rank leaves while others need it. They learn that at once, and not after the timeout, which is longer than the
// test.
func TestCloseWithin(t *testing.T) {
	const size, leaver = 3, 1
	allcasttest.Run(t, size, allcast.Options{Timeout: time.Hour}, func(ctx context.Context, c *allcast.Comm) error {
		if err := calltest.Allgather(ctx, c, 1, 50_000, "mcast"); err != nil {
			return err
		}
		if c.Rank() == leaver {
			return errors.Join(c.CloseWithin(20*time.Millisecond), c.CloseWithin(0), c.Close())
		}
		err := c.Barrier(ctx)
		var failed *allcast.RankError
		left := errors.Is(err, allcast.ErrClosed) || errors.Is(err, allcast.ErrRankLost)
		if !left || !errors.As(err, &failed) || failed.Rank != leaver {
			return fmt.Errorf("got %w, want an error that names rank %d", err, leaver)
		}
		return nil
	})
}

// Any rank closes a communicator on which the others multicast, with and without a barrier. They learn that at once,
// for all numbers of ranks.
func TestMulticastAfterClose(t *testing.T) {
	const eager, large = 100, 50_000
	quiet := allcast.Options{Timeout: time.Hour, Logger: slog.New(slog.DiscardHandler)}
	for size := 2; size <= 6; size++ {
		allcasttest.Run(t, size, quiet, func(ctx context.Context, c *allcast.Comm) error {
			for closer := range size {
				for _, bytes := range []int{eager, large} {
					if err := gatherWithout(ctx, c, closer, bytes, "mcast", 0); err != nil {
						return fmt.Errorf("rank %d of %d, %d bytes: %w", c.Rank(), size, bytes, err)
					}
				}
			}
			return nil
		})
	}
}

// The same, long after that rank has closed the communicator.
func TestCallAfterManyCloses(t *testing.T) {
	const size, eager, large, closes = 3, 100, 50_000, 70
	quiet := allcast.Options{Timeout: time.Hour, Logger: slog.New(slog.DiscardHandler)}
	allcasttest.Run(t, size, quiet, func(ctx context.Context, c *allcast.Comm) error {
		for i, algo := range []string{"mcast", "ring"} {
			for _, bytes := range []int{eager, large} {
				if err := gatherWithout(ctx, c, size-1-i, bytes, algo, closes); err != nil {
					return fmt.Errorf("rank %d, %s, %d bytes: %w", c.Rank(), algo, bytes, err)
				}
			}
		}
		return nil
	})
}

// gatherWithout lets one rank close a communicator. All make and close others. Then its members start an Allgather.
func gatherWithout(ctx context.Context, c *allcast.Comm, closer, bytes int, algo string, others int) error {
	sub, err := c.Dup(ctx)
	if err != nil {
		return err
	}
	if c.Rank() == closer {
		err = sub.Close()
	}
	for range others {
		other, failed := c.Dup(ctx)
		if err = errors.Join(err, failed); err != nil {
			return err
		}
		err = other.Close()
	}
	if c.Rank() == closer || err != nil {
		return errors.Join(err, c.Barrier(ctx))
	}
	err = calltest.Allgather(ctx, sub, 1, bytes, algo)
	var failed *allcast.RankError
	if !errors.Is(err, allcast.ErrClosed) || !errors.As(err, &failed) || failed.Rank != closer {
		return fmt.Errorf("got %w, want an error that says that rank %d has closed the communicator", err, closer)
	}
	return errors.Join(sub.Close(), c.Barrier(ctx))
}

// CloseWithin waits for ranks that still work, and its limit is no failure.
func TestCloseWithinWaits(t *testing.T) {
	t.Setenv("ALLCAST_FAULT", "drop=20%,seed=3")
	allcasttest.Run(t, 3, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		sub, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		return errors.Join(
			calltest.Allgather(ctx, sub, 1, 500_000, "mcast"), sub.CloseWithin(0), // which does not wait for others
			calltest.Allgather(ctx, c, 2, 500_000, "mcast"), c.CloseWithin(time.Hour),
		)
	})
}

// No operation ends after Close: programs may free what their hooks use.
func TestCloseEndsRequests(t *testing.T) {
	for range 20 {
		allcasttest.Run(t, 2, allcast.Options{}, func(_ context.Context, c *allcast.Comm) error {
			r, err := c.StartRecv(make([]byte, 1), 1-c.Rank(), 1)
			if err != nil {
				return err
			}
			var done atomic.Bool
			r.OnDone(func() { done.Store(true) })
			if err := errors.Join(c.Abort(), c.Close()); err != nil {
				return err
			}
			if !done.Load() {
				return errors.New("the operation has not ended after Close")
			}
			return nil
		})
	}
}
