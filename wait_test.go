package allcast_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
)

// Requests that are nil have nothing to wait for, and an ended context ends only the waiting.
func TestWaitEdges(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		if err := allcast.WaitAll(ended, nil, nil); err != nil {
			return fmt.Errorf("WaitAll without requests: %w", err)
		}
		for _, none := range [][]*allcast.Request{nil, {nil, nil}} {
			if i, err := allcast.WaitAny(ctx, none...); i != -1 || !errors.Is(err, allcast.ErrInvalid) {
				return fmt.Errorf("WaitAny without requests: %d, %w", i, err)
			}
		}
		buf := make([]byte, 10)
		recv, err := c.StartRecv(buf, 1-c.Rank(), 5)
		if err != nil {
			return err
		}
		if m := recv.Message(); m != (allcast.Message{}) {
			return fmt.Errorf("message %+v of a Recv that has not ended", m)
		}
		if i, err := allcast.WaitAny(ended, nil, recv, recv); i != -1 || !errors.Is(err, context.Canceled) {
			return fmt.Errorf("WaitAny with an ended context: %d, %w", i, err)
		}
		many := slices.Repeat([]*allcast.Request{recv}, 1<<16)
		if i, err := allcast.WaitAny(ctx, many...); i != -1 || !errors.Is(err, allcast.ErrInvalid) {
			return fmt.Errorf("WaitAny of too many requests: %d, %w", i, err)
		}
		var g allcast.Group
		g.Add(nil, nil)
		g.Add(recv, nil)
		g.Add(c.StartBarrier())
		if err := g.Wait(ended); !errors.Is(err, context.Canceled) || len(g.Requests()) != 3 {
			return fmt.Errorf("Group.Wait with an ended context: %v, %d requests", err, len(g.Requests()))
		}
		if err := c.Barrier(ctx); err != nil { // no rank sends before all have looked
			return err
		}
		send, err := c.StartSend(buf[:3], 1-c.Rank(), 5)
		if err != nil {
			return err
		}
		if err := allcast.WaitAll(ctx, send, nil, send); err != nil {
			return err
		}
		if m := send.Message(); m != (allcast.Message{}) {
			return fmt.Errorf("message %+v of a Send", m)
		}
		if i, err := allcast.WaitAny(ctx, nil, recv); i != 1 || err != nil {
			return fmt.Errorf("WaitAny: %d, %w", i, err)
		}
		if m, want := recv.Message(), (allcast.Message{Source: 1 - c.Rank(), Tag: 5, Bytes: 3}); m != want {
			return fmt.Errorf("message %+v, want %+v", m, want)
		}
		return g.Wait(ctx)
	})
}

// OnDone calls each function once: when the operation ends, however it ends, or at once if it has ended. A function
// may start the next operation.
func TestOnDone(t *testing.T) {
	allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		const calls = 20
		done := make(chan error, 3*calls)
		got := make([]byte, 1000*c.Size())
		var start func(left int) error
		start = func(left int) error {
			r, err := c.StartAllgather(calltest.Pattern(uint64(left), c.Rank(), 1000), got)
			if err != nil {
				return err
			}
			r.OnDone(func() {
				done <- calltest.Equal(r.Err(), got, calltest.Gathered(uint64(left), c.Size(), 1000))
				if left > 1 {
					if err := start(left - 1); err != nil {
						done <- err
					}
				}
			})
			return nil
		}
		if err := start(calls); err != nil {
			return err
		}
		for range calls {
			if err := <-done; err != nil {
				return err
			}
		}
		r, err := c.StartRecv(nil, 1-c.Rank(), 0)
		if err != nil {
			return err
		}
		for range calls {
			r.OnDone(func() { done <- r.Err() })
		}
		r.Cancel()
		<-r.Done()
		for range calls {
			r.OnDone(func() { done <- r.Err() })
		}
		for range 2 * calls {
			if err := <-done; !errors.Is(err, allcast.ErrWithdrawn) {
				return err
			}
		}
		if n := len(done); n > 0 {
			return fmt.Errorf("%d calls too many", n)
		}
		return nil
	})
}
