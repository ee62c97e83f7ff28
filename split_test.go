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
)

func TestSplitInParts(t *testing.T) {
	ranks(t, 5, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
		// 0 and 3, 1 and 4 in reverse, 2 not at all.
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
			return c.Close() // harmless
		}
		if c.Size() != 2 || c.WorldRank(0) != color+3 || c.WorldRank(1) != color || c.WorldRank(c.Rank()) != world.Rank() {
			return fmt.Errorf("rank %d of %d, first %d", c.Rank(), c.Size(), c.WorldRank(0))
		}
		got := make([]byte, 2*5000)
		if err := c.Allgather(ctx, pattern(uint64(color), c.Rank(), 5000), got, allcast.WithAlgorithm("mcast")); err != nil {
			return err
		}
		if !bytes.Equal(got, gathered(uint64(color), 2, 5000)) {
			return errors.New("mcast: wrong data")
		}
		return nil
	})
}

func TestSplitToNothing(t *testing.T) {
	ranks(t, 3, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
		c, err := world.Split(ctx, allcast.NoColor, 0)
		if c != nil {
			return errors.New("a communicator of nobody")
		}
		return errors.Join(err, world.Barrier(ctx))
	})
}

// TestSplitsAtTheSameTime: rank 0 is in two communicators, and both are split at
// once. What they become must not be taken for each other.
func TestSplitsAtTheSameTime(t *testing.T) {
	ranks(t, 3, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
		in := func(r int) int {
			if r == 0 || r == world.Rank() {
				return 0
			}
			return allcast.NoColor
		}
		var mine [3]*allcast.Comm // by the other rank
		for other := 1; other < 3; other++ {
			color := in(other)
			if world.Rank() == 0 {
				color = 0
			}
			c, err := world.Split(ctx, color, 0)
			if err != nil {
				return err
			}
			mine[other] = c
		}
		for round := range 30 {
			// Ranks 1 and 2 come when rank 0 has begun both.
			if world.Rank() != 0 {
				if err := world.Barrier(ctx); err != nil {
					return err
				}
			}
			errs := make([]error, 4)
			var wg sync.WaitGroup
			for other, c := range mine {
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
		copy(buf, pattern(seed, 0, len(buf)))
	}
	if err := d.Broadcast(ctx, buf, 0, allcast.WithAlgorithm("mcast")); err != nil {
		return err
	}
	if !bytes.Equal(buf, pattern(seed, 0, len(buf))) {
		return errors.New("mcast: wrong data")
	}
	return nil
}

// Who gives up in a Split must not leave the others waiting for it.
func TestSplitGivenUp(t *testing.T) {
	ranks(t, 3, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
		c, err := world.Dup(ctx)
		if err != nil {
			return err
		}
		if world.Rank() == 1 {
			over, cancel := context.WithCancel(ctx)
			cancel()
			if _, err := c.Dup(over); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("got %w, want that the context ended", err)
			}
			return nil
		}
		_, err = c.Dup(ctx)
		var re *allcast.RankError
		if !errors.Is(err, allcast.ErrAborted) || !errors.As(err, &re) || re.Rank != 1 {
			return fmt.Errorf("got %w, want that rank 1 aborted", err)
		}
		return nil
	})
}

// A rank that is lost during Split is the one that all others name, also those that have their
// communicator already and use it with a rank that has not.
func TestSplitNamesTheLost(t *testing.T) {
	const size, victim = 4, 2
	for _, phase := range []string{"transfer", "put"} {
		for nth := range int64(6) {
			t.Run(fmt.Sprint(phase, nth), func(t *testing.T) {
				var calls atomic.Int64
				calls.Store(math.MinInt64) // until all have joined
				now := make(chan struct{})
				opts := make([]allcast.Options, size)
				watches := map[int]watch{victim: func(comm uint32, _ uint64, what string) {
					if comm == 0 && what == phase && calls.Add(1) == nth+1 {
						close(now)
					}
				}}
				for r, err := range joinWatched(t, opts, watches, func(ctx context.Context, world *allcast.Comm) error {
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
				}) {
					if err != nil {
						t.Errorf("rank %d: %v", r, err)
					}
				}
			})
		}
	}
}

// splitUntilError splits off pairs, and uses them.
func splitUntilError(ctx context.Context, world *allcast.Comm) error {
	for i := 0; ; i++ {
		sub, err := world.Split(ctx, (world.Rank()+i)/2%2, -world.Rank())
		if err != nil {
			return err
		}
		if err := errors.Join(sub.Barrier(ctx), sub.Close()); err != nil {
			// Its partner names it; a rank whose pair is whole learns at the next Split.
			return err
		}
	}
}

// Errors use the numbers of the communicator that the call was made on, and give those of the world
// where they differ.
func TestErrorsNumberRanks(t *testing.T) {
	ranks(t, 5, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
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
			if !errors.As(err, &re) || re.Rank != 1 || re.WorldRank != 3 || !strings.Contains(err.Error(), "aborted: rank 1 (world rank 3)") {
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
	for _, err := range []error{split, dup, shrink, c.Abort(), c.Allgather(t.Context(), nil, nil), c.Barrier(t.Context())} {
		if !errors.Is(err, allcast.ErrInvalid) {
			t.Errorf("got %v, want ErrInvalid", err)
		}
	}
}
