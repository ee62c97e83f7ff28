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

// A Recv that is withdrawn, or too short for its message, leaves alone the small messages that have arrived
// before their Recv.
func TestFailedRecvKeepsOtherMessages(t *testing.T) {
	const n, early = 1000, 5
	for name, fail := range map[string]func(ctx context.Context, c *allcast.Comm) error{
		"withdrawn": func(ctx context.Context, c *allcast.Comm) error {
			ctx, cancel := context.WithCancel(ctx)
			errs := make(chan error, 1)
			go func() {
				_, err := c.Recv(ctx, nil, 0, 99)
				errs <- err
			}()
			cancel()
			if err := <-errs; !errors.Is(err, context.Canceled) {
				return fmt.Errorf("error %v, want context.Canceled", err)
			}
			return nil
		},
		"truncated": func(ctx context.Context, c *allcast.Comm) error {
			if _, err := c.Recv(ctx, make([]byte, n-1), 0, 1); !errors.Is(err, allcast.ErrTruncated) {
				return fmt.Errorf("error %v, want ErrTruncated", err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
				if c.Rank() == 0 {
					for i := range early {
						if err := c.Send(ctx, calltest.Pattern(uint64(i), 0, n), 1, 0); err != nil {
							return err
						}
					}
					// The data of this message follows that of the others.
					if err := c.Send(ctx, make([]byte, n), 1, 1); err != nil {
						return err
					}
					return c.Send(ctx, nil, 1, 2)
				}
				if _, err := c.Recv(ctx, nil, 0, 2); err != nil {
					return err
				}
				if err := fail(ctx, c); err != nil {
					return err
				}
				for i := range early {
					buf := make([]byte, n)
					if _, err := c.Recv(ctx, buf, 0, 0); err != nil {
						return err
					}
					if !bytes.Equal(buf, calltest.Pattern(uint64(i), 0, n)) {
						return fmt.Errorf("message %d: wrong data", i)
					}
				}
				return nil
			})
		})
	}
}
