package allcast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/allcast/allcast"
)

// TestFaults loses, doubles and reorders datagrams: the data must be right, and what
// is fetched must be near what was lost.
func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		name, spec string
		most       float64 // repaired chunks for each that was dropped
	}{
		{"drop and dup", "drop=2%,dup=2%,seed=7", 1.5},
		{"reorder too", "drop=2%,dup=2%,reorder=10%,seed=7", 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("ALLCAST_FAULT", tt.spec)
			var dropped, repaired atomic.Uint64
			ranks(t, 8, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
				n := large(1 << 20)
				for i := range uint64(5) {
					got := make([]byte, n*c.Size())
					if err := c.Allgather(ctx, pattern(i, c.Rank(), n), got, allcast.WithAlgorithm("mcast")); err != nil {
						return err
					}
					if !bytes.Equal(got, gathered(i, c.Size(), n)) {
						return fmt.Errorf("mcast, operation %d: wrong data", i)
					}
				}
				s := c.Stats()
				dropped.Add(s.DroppedChunks)
				repaired.Add(s.RepairedChunks)
				return nil
			})
			d, r := dropped.Load(), repaired.Load()
			t.Logf("%d chunks dropped, %d repaired", d, r)
			if d == 0 || r == 0 || float64(r) > tt.most*float64(d) {
				t.Errorf("%d chunks dropped, %d repaired: want some, and at most %g times as many", d, r, tt.most)
			}
		})
	}
}

func TestEverythingLost(t *testing.T) {
	t.Setenv("ALLCAST_FAULT", "drop=100%")
	ranks(t, 3, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		const n = 300_000
		got := make([]byte, n*c.Size())
		if err := c.Allgather(ctx, pattern(1, c.Rank(), n), got, allcast.WithAlgorithm("mcast")); err != nil {
			return err
		}
		if !bytes.Equal(got, gathered(1, c.Size(), n)) {
			return errors.New("mcast: wrong data")
		}
		return nil
	})
}

func TestAbort(t *testing.T) {
	ranks(t, 4, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		buf := make([]byte, 1<<20)
		// One of its own: others may still be in the barrier that ends Join.
		c, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if c.Rank() == 2 {
			return c.Abort() // instead of taking part
		}
		err = c.Broadcast(ctx, buf, 0)
		var re *allcast.RankError
		if !errors.Is(err, allcast.ErrAborted) || !errors.As(err, &re) || re.Rank != 2 {
			return fmt.Errorf("broadcast, aborted by rank 2: %w", err)
		}
		return nil
	})
}

func TestMismatch(t *testing.T) {
	for _, algo := range []string{"mcast", "binomial"} {
		ranks(t, 4, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
			n := 1000
			if c.Rank() == 1 {
				n++
			}
			err := c.Broadcast(ctx, make([]byte, n), 0, allcast.WithAlgorithm(algo))
			// Who got the root's data before it heard learns at its next call.
			if algo != "mcast" && err == nil {
				err = c.Barrier(ctx)
			}
			if !errors.Is(err, allcast.ErrMismatch) {
				return fmt.Errorf("%s of different sizes: %w", algo, err)
			}
			return nil
		})
	}
}

func TestLeaver(t *testing.T) {
	ranks(t, 4, allcast.Options{Timeout: 2e9}, func(ctx context.Context, c *allcast.Comm) error {
		if c.Rank() == 3 {
			return nil // closes while the others wait for it
		}
		err := c.Broadcast(ctx, make([]byte, 1000), 0, allcast.WithAlgorithm("mcast"))
		var re *allcast.RankError
		if !errors.As(err, &re) || (re.Rank != 3) {
			return fmt.Errorf("broadcast without rank 3: %w", err)
		}
		return nil
	})
}

// TestAbortRightAfterJoin: what a rank does as soon as it has joined is no reason for
// the others' Join to fail.
func TestAbortRightAfterJoin(t *testing.T) {
	for range 10 {
		ranks(t, 8, allcast.Options{NoMulticast: true}, func(_ context.Context, c *allcast.Comm) error {
			if c.Rank() == 0 {
				return c.Abort()
			}
			return nil
		})
	}
}
