package allcast_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
)

// Every algorithm of the collectives with a root, of those in which all ranks have something for each
// other, and of those with blocks that may be empty.
func TestExchanges(t *testing.T) {
	for _, op := range []string{
		"gather", "gatherv", "scatter", "scatterv", "alltoall", "alltoallv", "reduce",
		"allgather", "reduce-scatter", "sendrecv", "coalesced", "subset",
	} {
		t.Run(op, func(t *testing.T) {
			seed := uint64(0)
			each(t, op, func(ctx context.Context, c *allcast.Comm, algo string) error {
				for i, n := range []int{0, 4, 1000, 4096, 70000} {
					if err := calltest.Collectives[op](ctx, c, calltest.OnHeap, seed+uint64(i), n, algo); err != nil {
						return fmt.Errorf("%d bytes: %w", n, err)
					}
				}
				return nil
			})
		})
	}
}

// The root may work in place, and other ranks need no buffer that they do not use.
func TestRootInPlace(t *testing.T) {
	const n = 1000
	allcasttest.Run(t, 3, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		const root = 1
		all, mine := calltest.Gathered(1, c.Size(), n), calltest.Pattern(1, c.Rank(), n)
		for _, algo := range allcast.Algorithms("gather") {
			send, recv := mine, []byte(nil)
			if c.Rank() == root {
				send, recv = nil, make([]byte, 3*n)
				copy(recv[root*n:], mine)
			}
			err := c.Gather(ctx, send, recv, root, allcast.WithAlgorithm(algo))
			if c.Rank() == root {
				err = calltest.Equal(err, recv, all)
			}
			if err != nil {
				return fmt.Errorf("gather by %s: %w", algo, err)
			}
		}
		for _, algo := range allcast.Algorithms("scatter") {
			send, recv := []byte(nil), make([]byte, n)
			if c.Rank() == root {
				send, recv = all, nil
			}
			err := c.Scatter(ctx, send, recv, root, allcast.WithAlgorithm(algo))
			if c.Rank() != root {
				err = calltest.Equal(err, recv, mine)
			}
			if err != nil {
				return fmt.Errorf("scatter by %s: %w", algo, err)
			}
		}
		for _, algo := range allcast.Algorithms("reduce") {
			send, recv := allcast.Bytes(calltest.Numbers(1, c.Rank(), n)), []byte(nil)
			if c.Rank() == root {
				send, recv = nil, send
			}
			err := c.Reduce(ctx, send, recv, allcast.Float32, allcast.Sum, root, allcast.WithAlgorithm(algo))
			if c.Rank() == root {
				err = calltest.Equal(err, recv, allcast.Bytes(calltest.Sum(1, 3, n)))
			}
			if err != nil {
				return fmt.Errorf("reduce by %s: %w", algo, err)
			}
		}
		return nil
	})
}

// Two ranks that disagree about the bytes between them both get ErrMismatch.
func TestPrivateSizesDisagree(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, c *allcast.Comm) error{
		"gatherv": func(ctx context.Context, c *allcast.Comm) error {
			return c.Gatherv(ctx, make([]byte, 5+c.Rank()/2), make([]byte, 15), []int{5, 5, 5}, 0)
		},
		"scatterv": func(ctx context.Context, c *allcast.Comm) error {
			return c.Scatterv(ctx, make([]byte, 15), make([]byte, 5+c.Rank()/2), []int{5, 5, 5}, 0)
		},
		"alltoallv": func(ctx context.Context, c *allcast.Comm) error {
			send, recv := []int{1, 1, 1}, []int{1, 1, 1}
			if c.Rank() == 2 {
				send[0], recv[0] = 0, 2 // the same sum
			}
			return c.Alltoallv(ctx, make([]byte, 2+send[0]), make([]byte, 2+recv[0]), send, recv)
		},
	} {
		t.Run(name, func(t *testing.T) {
			allcasttest.Run(t, 3, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
				err := call(ctx, c)
				if c.Rank() == 1 && err == nil {
					return nil // it agrees with both, and may be done first
				}
				if !errors.Is(err, allcast.ErrMismatch) {
					return fmt.Errorf("error %v, want ErrMismatch", err)
				}
				return nil
			})
		})
	}
}
