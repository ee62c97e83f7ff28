package allcast_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
	"github.com/allcast/allcast/internal/testenv"
)

// TestFaults drops, duplicates and reorders datagrams. The data must be correct. TestNoFetchStorm of internal/sim
// checks that ranks fetch no more than was dropped: here a rank that does not run for a while takes more for lost.
func TestFaults(t *testing.T) {
	for name, spec := range map[string]string{
		"drop and dup": "drop=2%,dup=2%,seed=7",
		"reorder too":  "drop=2%,dup=2%,reorder=10%,seed=7",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("ALLCAST_FAULT", spec)
			var dropped, repaired atomic.Uint64
			allcasttest.Run(t, 8, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
				n := testenv.Large(1 << 20)
				for i := range uint64(5) {
					if err := calltest.Allgather(ctx, c, i, n, "mcast"); err != nil {
						return fmt.Errorf("operation %d: %w", i, err)
					}
				}
				s := c.Stats()
				dropped.Add(s.DroppedChunks)
				repaired.Add(s.RepairedChunks)
				return nil
			})
			d, r := dropped.Load(), repaired.Load()
			t.Logf("%d chunks dropped, %d repaired", d, r)
			if d == 0 || r == 0 {
				t.Errorf("%d chunks dropped, %d repaired: want some of both", d, r)
			}
		})
	}
}

func TestAllDatagramsLost(t *testing.T) {
	t.Setenv("ALLCAST_FAULT", "drop=100%")
	allcasttest.Run(t, 3, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		return calltest.Allgather(ctx, c, 1, 300_000, "mcast")
	})
}

func TestAbort(t *testing.T) {
	allcasttest.Run(t, 4, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		buf := make([]byte, 1<<20)
		// A new communicator, because other ranks may still be in the last barrier of Join.
		c, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if c.Rank() == 2 {
			return c.Abort() // instead of the broadcast
		}
		err = c.Broadcast(ctx, buf, 0)
		var re *allcast.RankError
		if !errors.Is(err, allcast.ErrAborted) || !errors.As(err, &re) || re.Rank != 2 {
			return fmt.Errorf("broadcast, aborted by rank 2: %w", err)
		}
		return nil
	})
}

// large is the size of a multicast that is not eager.
const large = 100_000

func TestMismatch(t *testing.T) {
	for _, x := range []struct {
		algo  string
		n     int
		eager bool // whether a rank may get the data of the root before the mismatch is found
	}{{"mcast", 1000, true}, {"mcast", large, false}, {"binomial", 1000, true}} {
		allcasttest.Run(t, 4, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
			n := x.n
			if c.Rank() == 1 {
				n++
			}
			err := c.Broadcast(ctx, make([]byte, n), 0, allcast.WithAlgorithm(x.algo))
			// Such a rank learns of the mismatch in its next call.
			if x.eager && err == nil {
				err = c.Barrier(ctx)
			}
			if !errors.Is(err, allcast.ErrMismatch) {
				return fmt.Errorf("%s of about %d bytes: %w", x.algo, x.n, err)
			}
			return nil
		})
	}
}

func TestRankLeavesEarly(t *testing.T) {
	var joined sync.WaitGroup // a rank that leaves before the others have joined fails their Join
	joined.Add(4)
	allcasttest.Run(t, 4, allcast.Options{Timeout: time.Hour}, func(ctx context.Context, c *allcast.Comm) error {
		joined.Done()
		joined.Wait()
		if c.Rank() == 3 {
			return c.CloseWithin(time.Millisecond) // while the others wait for this rank
		}
		err := c.Broadcast(ctx, make([]byte, large), 0, allcast.WithAlgorithm("mcast"))
		var re *allcast.RankError
		if !errors.As(err, &re) || re.Rank != 3 {
			return fmt.Errorf("broadcast without rank 3: %w", err)
		}
		_ = c.CloseWithin(time.Millisecond) // an error, unless this rank knows already that rank 3 waits for nobody
		return nil
	})
}

// An abort right after Join does not fail the Join of other ranks.
func TestAbortRightAfterJoin(t *testing.T) {
	for range 10 {
		allcasttest.Run(t, 8, allcast.Options{NoMulticast: true}, func(_ context.Context, c *allcast.Comm) error {
			if c.Rank() == 0 {
				return c.Abort()
			}
			return nil
		})
	}
}
