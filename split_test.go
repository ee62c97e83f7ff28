package allcast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
	"github.com/allcast/allcast/internal/joinhook"
)

func TestSplitInParts(t *testing.T) {
	allcasttest.Run(t, 5, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
		// Pairs in reverse order: ranks 3 and 0, ranks 4 and 1. Rank 2 is in none.
		color, key := world.Rank()%3, -world.Rank()
		if color == 2 {
			color = allcast.NoColor
		}
		c, err := world.Split(ctx, color, key)
		if err != nil {
			return err
		}
		if color == allcast.NoColor {
			if c != nil {
				return errors.New("NoColor got a communicator")
			}
			return c.Close() // works on a nil communicator
		}
		if c.Size() != 2 || c.WorldRank(0) != color+3 || c.WorldRank(1) != color ||
			c.WorldRank(c.Rank()) != world.Rank() {
			return fmt.Errorf("rank %d of %d, first %d", c.Rank(), c.Size(), c.WorldRank(0))
		}
		return calltest.Allgather(ctx, c, uint64(color), 5000, "mcast")
	})
}

func TestSplitWithoutColors(t *testing.T) {
	allcasttest.Run(t, 3, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
		c, err := world.Split(ctx, allcast.NoColor, 0)
		if c != nil {
			return errors.New("all ranks have NoColor, and one got a communicator")
		}
		return errors.Join(err, world.Barrier(ctx))
	})
}

// Rank 0 is in two communicators that are split at the same time. The results must not be confused.
func TestSplitsAtTheSameTime(t *testing.T) {
	allcasttest.Run(t, 3, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
		in := func(r int) int {
			if r == 0 || r == world.Rank() {
				return 0
			}
			return allcast.NoColor
		}
		var pairs [3]*allcast.Comm // by the other rank
		for other := 1; other < 3; other++ {
			color := in(other)
			if world.Rank() == 0 {
				color = 0
			}
			c, err := world.Split(ctx, color, 0)
			if err != nil {
				return err
			}
			pairs[other] = c
		}
		for round := range 30 {
			// Ranks 1 and 2 start after rank 0 has started both Dups.
			if world.Rank() != 0 {
				if err := world.Barrier(ctx); err != nil {
					return err
				}
			}
			errs := make([]error, 4)
			var wg sync.WaitGroup
			for other, c := range pairs {
				if c == nil {
					continue
				}
				wg.Go(func() { errs[other] = dupAndUse(ctx, c, uint64(10*round+other)) })
			}
			if world.Rank() == 0 {
				errs[3] = world.Barrier(ctx)
			}
			wg.Wait()
			if err := errors.Join(errs...); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		return nil
	})
}

func dupAndUse(ctx context.Context, c *allcast.Comm, seed uint64) error {
	d, err := c.Dup(ctx)
	if err != nil {
		return err
	}
	buf := make([]byte, 3000)
	if d.Rank() == 0 {
		copy(buf, calltest.Pattern(seed, 0, len(buf)))
	}
	if err := d.Broadcast(ctx, buf, 0, allcast.WithAlgorithm("mcast")); err != nil {
		return err
	}
	if !bytes.Equal(buf, calltest.Pattern(seed, 0, len(buf))) {
		return errors.New("mcast: wrong data")
	}
	return nil
}

// The other ranks do not wait for a rank that gives up in a Split.
func TestSplitGivenUp(t *testing.T) {
	allcasttest.Run(t, 3, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
		c, err := world.Dup(ctx)
		if err != nil {
			return err
		}
		if world.Rank() == 1 {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			if _, err := c.Dup(ended); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("got %w, want context.Canceled", err)
			}
			return nil
		}
		_, err = c.Dup(ctx)
		var re *allcast.RankError
		if !errors.Is(err, allcast.ErrAborted) || !errors.As(err, &re) || re.Rank != 1 {
			return fmt.Errorf("got %w, want an error that names rank 1", err)
		}
		return nil
	})
}

// All other ranks name the rank that is lost during Split. This includes ranks that already use the new
// communicator with a rank that does not have it yet.
func TestSplitNamesLostRank(t *testing.T) {
	const size, victim = 4, 2
	for _, phase := range []string{"transfer", "put"} {
		for nth := range int64(6) {
			t.Run(fmt.Sprint(phase, nth), func(t *testing.T) {
				var calls atomic.Int64
				calls.Store(math.MinInt64) // no phase counts until all ranks have joined
				now := make(chan struct{})
				hooks := joinhook.Hooks{Watch: func(rank int, comm uint32, _ uint64, entered string) {
					if rank == victim && comm == 0 && entered == phase && calls.Add(1) == nth+1 {
						close(now)
					}
				}}
				run := func(ctx context.Context, world *allcast.Comm) error {
					err := world.Barrier(ctx)
					if world.Rank() == victim {
						calls.Store(0)
						go func() {
							<-now
							world.Vanish()
						}()
					}
					if err == nil {
						err = splitUntilError(ctx, world)
					}
					var re *allcast.RankError
					if world.Rank() != victim && (!errors.As(err, &re) || re.WorldRank != victim) {
						return fmt.Errorf("rank %d vanished: %w", victim, err)
					}
					return nil
				}
				ctx := joinhook.With(t.Context(), hooks)
				for r, err := range allcasttest.JoinAll(ctx, make([]allcast.Options, size), run) {
					if err != nil {
						t.Errorf("rank %d: %v", r, err)
					}
				}
			})
		}
	}
}

// splitUntilError splits the world into pairs and uses them, until a call fails.
func splitUntilError(ctx context.Context, world *allcast.Comm) error {
	for i := 0; ; i++ {
		sub, err := world.Split(ctx, (world.Rank()+i)/2%2, -world.Rank())
		if err != nil {
			return err
		}
		if err := errors.Join(sub.Barrier(ctx), sub.Close()); err != nil {
			// The partner of a lost rank names it here. The other ranks learn of it in their next Split.
			return err
		}
	}
}

// Errors name ranks of the communicator of the call, and their world ranks where those differ.
func TestErrorsNumberRanks(t *testing.T) {
	allcasttest.Run(t, 5, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
		// World ranks 4, 3 and 1 are ranks 0, 1 and 2.
		color := 0
		if world.Rank()%2 == 0 && world.Rank() < 4 {
			color = allcast.NoColor
		}
		c, err := world.Split(ctx, color, -world.Rank())
		if err != nil || c == nil {
			return err
		}
		if c.Rank() == 1 {
			return c.Abort()
		}
		for _, algo := range []string{"mcast", "ring"} {
			err = c.Allgather(ctx, nil, make([]byte, 3000), allcast.WithAlgorithm(algo))
			var re *allcast.RankError
			if !errors.As(err, &re) || re.Rank != 1 || re.WorldRank != 3 ||
				!strings.Contains(err.Error(), "aborted: rank 1 (world rank 3)") {
				return fmt.Errorf("%s, aborted by rank 1: %w", algo, err)
			}
		}
		return nil
	})
}

func TestNilCommunicator(t *testing.T) {
	var c *allcast.Comm
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	_, split := c.Split(t.Context(), 0, 0)
	_, dup := c.Dup(t.Context())
	_, shrink := c.Shrink(t.Context())
	for _, err := range []error{
		split, dup, shrink, c.Abort(), c.Allgather(t.Context(), nil, nil), c.Barrier(t.Context()),
	} {
		if !errors.Is(err, allcast.ErrInvalid) {
			t.Errorf("got %v, want ErrInvalid", err)
		}
	}
}
