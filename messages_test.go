package allcast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
)

var messageSizes = []int{0, 1, 100, 4096, 64 << 10, 64<<10 + 1, 1<<20 + 3}

// Messages of one rank with the same tag arrive in order, whatever their sizes, next to collectives.
func TestSendRecv(t *testing.T) {
	allcasttest.Run(t, 3, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		next, last := (c.Rank()+1)%3, (c.Rank()+2)%3
		var sends []*allcast.Request
		for i, n := range messageSizes {
			for tag := range 2 {
				r, err := c.StartSend(calltest.Pattern(uint64(2*i+tag), c.Rank(), n), next, tag)
				if err != nil {
					return err
				}
				sends = append(sends, r)
			}
		}
		if err := calltest.Allgather(ctx, c, 1, 100_000, "ring"); err != nil {
			return err
		}
		for _, tag := range []int{1, 0} {
			for i, n := range messageSizes {
				buf := make([]byte, n+5)
				m, err := c.Recv(ctx, buf, last, tag)
				if err != nil {
					return err
				}
				if want := (allcast.Message{Source: last, Tag: tag, Bytes: n}); m != want {
					return fmt.Errorf("received %+v, want %+v", m, want)
				}
				if !bytes.Equal(buf[:n], calltest.Pattern(uint64(2*i+tag), last, n)) {
					return fmt.Errorf("message %d of %d bytes with tag %d: wrong data", i, n, tag)
				}
			}
		}
		for _, r := range sends {
			if err := r.Wait(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// A receive from any source takes each message once, and names its sender.
func TestRecvFromAnySource(t *testing.T) {
	allcasttest.Run(t, 4, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		const each = 20
		if c.Rank() > 0 {
			for i := range each {
				if err := c.Send(ctx, calltest.Pattern(uint64(i), c.Rank(), i*5000), 0, 7); err != nil {
					return err
				}
			}
			return nil
		}
		seen := map[int]int{}
		buf := make([]byte, each*5000)
		for range 3 * each {
			m, err := c.Recv(ctx, buf, allcast.AnySource, 7)
			if err != nil {
				return err
			}
			i := seen[m.Source]
			seen[m.Source]++
			if !bytes.Equal(buf[:m.Bytes], calltest.Pattern(uint64(i), m.Source, i*5000)) {
				return fmt.Errorf("message %d of rank %d: wrong data", i, m.Source)
			}
		}
		return nil
	})
}

// A message that is longer than the buffer is an error of the receiver, and of nobody else.
func TestTruncated(t *testing.T) {
	allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		for _, n := range []int{100, 1 << 20} {
			if c.Rank() == 0 {
				if err := c.Send(ctx, make([]byte, n), 1, 0); err != nil {
					return err
				}
			} else if _, err := c.Recv(ctx, make([]byte, n-1), 0, 0); !errors.Is(err, allcast.ErrTruncated) {
				return fmt.Errorf("error %v, want ErrTruncated", err)
			}
		}
		return calltest.Allgather(ctx, c, 1, 1000, "ring")
	})
}

// A Send or a Recv without a match is withdrawn when its context ends, and nothing else is affected.
func TestWithdraw(t *testing.T) {
	allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		ended, cancel := context.WithCancel(ctx)
		other := 1 - c.Rank()
		errs := make(chan error, 2)
		go func() {
			_, err := c.Recv(ended, make([]byte, 10), other, 1)
			errs <- err
		}()
		go func() { errs <- c.Send(ended, make([]byte, 1<<20), other, 2) }()
		cancel()
		for range 2 {
			if err := <-errs; !errors.Is(err, context.Canceled) || errors.Is(err, allcast.ErrAborted) {
				return fmt.Errorf("error %v, want context.Canceled alone", err)
			}
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		// The withdrawn message is gone, and the next one with its tag is received.
		if c.Rank() == 0 {
			return c.Send(ctx, calltest.Pattern(9, 0, 1<<20), 1, 2)
		}
		buf := make([]byte, 1<<20)
		_, err := c.Recv(ctx, buf, 0, 2)
		return calltest.Equal(err, buf, calltest.Pattern(9, 0, 1<<20))
	})
}

// A call that fails alone, withdrawn or too small for its message, loses no other message that is already here.
func TestMessagesSurvive(t *testing.T) {
	allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		const n = 1000
		if c.Rank() == 0 {
			for i := range 3 {
				if err := c.Send(ctx, calltest.Pattern(uint64(i), 0, n), 1, i); err != nil {
					return err
				}
			}
			return c.Send(ctx, nil, 1, 3)
		}
		if _, err := c.Recv(ctx, nil, 0, 3); err != nil { // the others came before this one
			return err
		}
		ended, cancel := context.WithCancel(ctx)
		errs := make(chan error)
		go func() {
			_, err := c.Recv(ended, nil, 0, 4)
			errs <- err
		}()
		cancel()
		if err := <-errs; !errors.Is(err, context.Canceled) {
			return err
		}
		if _, err := c.Recv(ctx, make([]byte, n-1), 0, 0); !errors.Is(err, allcast.ErrTruncated) {
			return fmt.Errorf("error %v, want ErrTruncated", err)
		}
		for i := 1; i < 3; i++ {
			buf := make([]byte, n)
			_, err := c.Recv(ctx, buf, 0, i)
			if err := calltest.Equal(err, buf, calltest.Pattern(uint64(i), 0, n)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Bad arguments start nothing.
func TestBadMessages(t *testing.T) {
	allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		for _, err := range []error{
			c.Send(ctx, nil, 2, 0), c.Send(ctx, nil, -1, 0), c.Send(ctx, nil, c.Rank(), 0), c.Send(ctx, nil, 1-c.Rank(), -1),
		} {
			if !errors.Is(err, allcast.ErrInvalid) {
				return fmt.Errorf("error %v, want ErrInvalid", err)
			}
		}
		return c.Barrier(ctx)
	})
}
