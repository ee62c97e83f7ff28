package allcast_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
)

// late checks the error of a call that passed its deadline because a rank did not make it.
func late(err error, culprit int) error {
	var re *allcast.RankError
	if !errors.Is(err, allcast.ErrDeadline) || errors.Is(err, allcast.ErrWithdrawn) || !errors.As(err, &re) ||
		re.Rank != culprit || re.Op == "" || re.Phase == "" || re.Missing == "" {
		return fmt.Errorf("got %w, want a deadline that names rank %d", err, culprit)
	}
	return nil
}

// One rank limits the time of a call that another rank does not make. The call fails on all ranks that made it,
// and so does a call that waits behind it.
func TestTimeout(t *testing.T) {
	const size, hasty, absent = 4, 1, 3
	for _, algo := range []string{"mcast", "ring"} {
		t.Run(algo, func(t *testing.T) {
			allcasttest.Run(t, size, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
				c, err := world.Dup(ctx)
				if err != nil {
					return err
				}
				// Timeouts that differ do not make the calls different.
				long := allcast.WithTimeout(time.Duration(c.Rank()) * time.Hour)
				if err := c.Barrier(ctx, long); err != nil {
					return err
				}
				opts := []allcast.CallOption{allcast.WithAlgorithm(algo), long}
				var first *allcast.Request
				if c.Rank() != hasty && c.Rank() != absent {
					if first, err = c.StartAllgather(nil, make([]byte, 400_000), opts...); err != nil {
						return err
					}
				}
				// The hasty rank must find only the absent one late, however slow the machine is.
				if err := world.Barrier(ctx); err != nil {
					return err
				}
				switch c.Rank() {
				case absent:
					return shrinkAndUse(ctx, world, c)
				case hasty:
					opts = append(opts, allcast.WithTimeout(20*time.Millisecond))
					if first, err = c.StartAllgather(nil, make([]byte, 400_000), opts...); err != nil {
						return err
					}
				}
				err = errors.Join(late(c.Barrier(ctx, long), absent), late(first.Wait(ctx), absent))
				if err != nil {
					return err
				}
				return shrinkAndUse(ctx, world, c)
			})
		})
	}
}

// Without a match, a Send and a Recv end at their timeout, and the communicator is intact.
func TestTimeoutOfMessages(t *testing.T) {
	short := allcast.WithTimeout(20 * time.Millisecond)
	allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		other := 1 - c.Rank()
		unmatched := func(err error, rank int) error {
			var w *allcast.WithdrawnError
			if !errors.Is(err, allcast.ErrDeadline) || !errors.Is(err, allcast.ErrWithdrawn) || !errors.As(err, &w) ||
				w.Rank != rank || w.WorldRank != rank || w.Op == "" || w.Missing == "" {
				return fmt.Errorf("got %w, want a deadline without a match that names rank %d", err, rank)
			}
			return nil
		}
		_, recv := c.Recv(ctx, make([]byte, 10), other, 1, short)
		_, open := c.Recv(ctx, make([]byte, 10), allcast.AnySource, 1, short)
		err := errors.Join(
			unmatched(recv, other), unmatched(open, -1),
			unmatched(c.Send(ctx, make([]byte, 1<<20), other, 2, short), other),
			c.Barrier(ctx),
		)
		if err != nil {
			return err
		}
		var g allcast.Group
		buf := make([]byte, 1<<20)
		g.Add(c.StartRecv(buf, other, 2, allcast.WithTimeout(time.Hour)))
		g.Add(c.StartSend(calltest.Pattern(1, c.Rank(), len(buf)), other, 2, allcast.WithTimeout(time.Hour)))
		return calltest.Equal(g.Wait(ctx), buf, calltest.Pattern(1, other, len(buf)))
	})
}

// Messages accept no option that has no effect on them, and no call accepts a negative timeout.
func TestTimeoutRefused(t *testing.T) {
	allcasttest.Run(t, 2, allcast.Options{}, func(_ context.Context, c *allcast.Comm) error {
		for i, o := range []allcast.CallOption{
			allcast.WithAlgorithm("ring"), allcast.WithChains(2), allcast.WithChainsByRack(), allcast.WithSubgroups(2),
			allcast.WithChunk(9), allcast.WithSegment(9), allcast.WithRadix(2), allcast.WithFactor(2),
			allcast.WithTimeout(-1),
		} {
			_, send := c.StartSend(nil, 1-c.Rank(), 0, o)
			_, recv := c.StartRecv(nil, 1-c.Rank(), 0, o)
			if !errors.Is(send, allcast.ErrInvalid) || !errors.Is(recv, allcast.ErrInvalid) {
				return fmt.Errorf("option %d: %w, %w", i, send, recv)
			}
		}
		if _, err := c.StartBarrier(allcast.WithTimeout(-1)); !errors.Is(err, allcast.ErrInvalid) {
			return err
		}
		return nil
	})
}

// Request.Cancel withdraws a message without a match, and aborts the communicator of any other operation.
func TestRequestCancel(t *testing.T) {
	allcasttest.Run(t, 3, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
		c, err := world.Dup(ctx)
		if err != nil {
			return err
		}
		var g allcast.Group
		g.Add(c.StartRecv(make([]byte, 1), allcast.AnySource, 1))
		g.Add(c.StartRecv(make([]byte, 1), (c.Rank()+1)%3, 1))
		g.Add(c.StartSend(make([]byte, 1<<20), (c.Rank()+1)%3, 2))
		for _, r := range g.Requests() {
			r.Cancel()
			r.Cancel()
			if err := r.Wait(ctx); !errors.Is(err, allcast.ErrWithdrawn) || errors.Is(err, allcast.ErrDeadline) {
				return fmt.Errorf("got %w, want ErrWithdrawn", err)
			}
			r.Cancel() // it has ended
		}
		if err := calltest.Allgather(ctx, c, 1, 5000, "ring"); err != nil {
			return err
		}
		if err := world.Barrier(ctx); err != nil { // the abort below must not reach a rank in the Allgather
			return err
		}
		if c.Rank() < 2 {
			r, err := c.StartAllgather(nil, make([]byte, 3000))
			if err != nil {
				return err
			}
			if c.Rank() == 1 {
				r.Cancel()
			}
			if err := r.Wait(ctx); !abortedBy(err, 1) {
				return fmt.Errorf("got %w, want an abort by rank 1", err)
			}
		}
		return shrinkAndUse(ctx, world, c)
	})
}
