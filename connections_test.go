package allcast_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
)

// Ranks connect on demand. After a ring Allgather and one by multicast, a rank is connected to its partners in
// barriers and on the ring, and to no other.
func TestConnections(t *testing.T) {
	const size, n = 16, 5000
	content := func(rank, call int) []byte { return bytes.Repeat([]byte{byte(rank), byte(call), 7, 1, 9}, n/5) }
	allcasttest.Run(t, size, allcast.Options{NoCalibration: true}, func(ctx context.Context, c *allcast.Comm) error {
		for call, algo := range []string{"ring", "mcast"} {
			got := make([]byte, n*size)
			if err := c.Allgather(ctx, content(c.Rank(), call), got, allcast.WithAlgorithm(algo)); err != nil {
				return err
			}
			for r := range size {
				if !bytes.Equal(got[n*r:][:n], content(r, call)) {
					return fmt.Errorf("%s: wrong data of rank %d", algo, r)
				}
			}
		}
		var allowed []int
		for d := 1; d < size; d *= 2 {
			allowed = append(allowed, (c.Rank()+d)%size, (c.Rank()+size-d)%size, c.Rank()^d)
		}
		for peer := range c.Stats().Peers {
			if !slices.Contains(allowed, peer) {
				t.Errorf("rank %d is connected to rank %d", c.Rank(), peer)
			}
		}
		if n := len(c.Stats().Peers); n < 2 || n > 8 {
			t.Errorf("rank %d is connected to %d ranks", c.Rank(), n)
		}
		return nil
	})
}

// Small calls whose algorithm nobody chose do not connect all ranks, also where nothing was measured.
func TestAutoConnections(t *testing.T) {
	const size, n = 16, 4096
	for name, call := range map[string]func(ctx context.Context, c *allcast.Comm, one, all []byte) error{
		"allgather": func(ctx context.Context, c *allcast.Comm, one, all []byte) error { return c.Allgather(ctx, one, all) },
		"allreduce": func(ctx context.Context, c *allcast.Comm, _, all []byte) error {
			return c.Allreduce(ctx, nil, all, allcast.Int32, allcast.Sum)
		},
		"alltoall":  func(ctx context.Context, c *allcast.Comm, _, all []byte) error { return c.Alltoall(ctx, nil, all) },
		"broadcast": func(ctx context.Context, c *allcast.Comm, one, _ []byte) error { return c.Broadcast(ctx, one, 0) },
		"gather":    func(ctx context.Context, c *allcast.Comm, one, all []byte) error { return c.Gather(ctx, one, all, 0) },
		"reduce": func(ctx context.Context, c *allcast.Comm, _, all []byte) error {
			return c.Reduce(ctx, all, slices.Clone(all), allcast.Int32, allcast.Sum, 0)
		},
		"reduce-scatter": func(ctx context.Context, c *allcast.Comm, one, all []byte) error {
			return c.ReduceScatter(ctx, all, one, allcast.Int32, allcast.Sum)
		},
		"scatter": func(ctx context.Context, c *allcast.Comm, one, all []byte) error { return c.Scatter(ctx, all, one, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			opts := allcast.Options{NoCalibration: true}
			allcasttest.Run(t, size, opts, func(ctx context.Context, c *allcast.Comm) error {
				if err := call(ctx, c, make([]byte, n), make([]byte, n*size)); err != nil {
					return err
				}
				if n := len(c.Stats().Peers); n > 8 {
					t.Errorf("rank %d is connected to %d ranks", c.Rank(), n)
				}
				return nil
			})
		})
	}
}
