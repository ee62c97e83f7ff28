package allcast_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
)

// BenchmarkNewComm makes communicators of all ranks, whose multicast groups the ranks test.
func BenchmarkNewComm(b *testing.B) {
	for _, size := range []int{2, 8} {
		all := make([]int, size)
		for i := range all {
			all[i] = i
		}
		for name, makeComm := range map[string]func(context.Context, *allcast.Comm) (*allcast.Comm, error){
			"Split":  func(ctx context.Context, c *allcast.Comm) (*allcast.Comm, error) { return c.Split(ctx, 0, 0) },
			"Subset": func(ctx context.Context, c *allcast.Comm) (*allcast.Comm, error) { return c.Subset(ctx, all, "") },
		} {
			b.Run(name+"/"+strconv.Itoa(size), func(b *testing.B) {
				allcasttest.Run(b, size, allcast.Options{NoCalibration: true}, func(ctx context.Context, c *allcast.Comm) error {
					if c.Rank() == 0 {
						b.ResetTimer()
					}
					for range b.N {
						sub, err := makeComm(ctx, c)
						if err != nil {
							return err
						}
						if err := sub.Close(); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
}
