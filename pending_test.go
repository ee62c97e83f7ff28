package allcast_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
)

// A Recv without a match holds up neither Close nor other ranks. It fails when the job is left.
func TestCloseWithPendingRecv(t *testing.T) {
	requests := make([]*allcast.Request, 2)
	allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) (err error) {
		if requests[c.Rank()], err = c.StartRecv(nil, 1-c.Rank(), 0); err != nil {
			return err
		}
		return c.Barrier(ctx)
	})
	for rank, r := range requests {
		if err := r.Wait(t.Context()); !errors.Is(err, allcast.ErrClosed) && !errors.Is(err, allcast.ErrAborted) {
			t.Errorf("rank %d: error %v, want ErrClosed or ErrAborted", rank, err)
		}
	}
}

// A Recv may wait for longer than the deadline of operations: its message may come much later.
func TestRecvHasNoDeadline(t *testing.T) {
	// Without multicast, Subset makes no collective, which the deadline would limit too.
	o := allcast.Options{Deadline: 50 * time.Millisecond, NoMulticast: true}
	allcasttest.Run(t, 2, o, func(ctx context.Context, c *allcast.Comm) error {
		other, err := c.Subset(ctx, []int{0, 1}, "")
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			_, err := c.Recv(ctx, nil, 0, 0)
			return err
		}
		if err := other.Barrier(ctx); !errors.Is(err, allcast.ErrDeadline) {
			return fmt.Errorf("error %v, want ErrDeadline", err)
		}
		return c.Send(ctx, nil, 1, 0)
	})
}

// Abort ends messages without a match, on all ranks.
func TestAbortEndsMessages(t *testing.T) {
	allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		sub, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		var g allcast.Group
		g.Add(sub.StartRecv(make([]byte, 1), allcast.AnySource, 0))
		g.Add(sub.StartSend(make([]byte, 1<<20), 1-c.Rank(), 1))
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		if c.Rank() == 0 {
			if err := sub.Abort(); err != nil {
				return err
			}
		}
		if err := g.Wait(ctx); !errors.Is(err, allcast.ErrAborted) {
			return fmt.Errorf("error %v, want ErrAborted", err)
		}
		next, err := sub.Shrink(ctx)
		if err != nil {
			return err
		}
		if err := sub.Close(); err != nil {
			return err
		}
		if _, err := sub.StartRecv(nil, 0, 0); !errors.Is(err, allcast.ErrClosed) {
			return fmt.Errorf("recv on a closed communicator: %v", err)
		}
		if c.Rank() == 0 {
			return next.Send(ctx, nil, 1, 0)
		}
		_, err = next.Recv(ctx, nil, 0, 0)
		return err
	})
}
