package allcast_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
)

// BenchmarkSendRecv is a ping-pong of two ranks.
func BenchmarkSendRecv(b *testing.B) {
	for _, n := range []int{0, 4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(2 * n))
			b.ReportAllocs()
			allcasttest.Run(b, 2, allcast.Options{NoCalibration: true}, func(ctx context.Context, c *allcast.Comm) error {
				buf := make([]byte, n)
				for range b.N {
					if c.Rank() == 0 {
						if err := c.Send(ctx, buf, 1, 0); err != nil {
							return err
						}
						if _, err := c.Recv(ctx, buf, 1, 0); err != nil {
							return err
						}
						continue
					}
					if _, err := c.Recv(ctx, buf, 0, 0); err != nil {
						return err
					}
					if err := c.Send(ctx, buf, 0, 0); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}
