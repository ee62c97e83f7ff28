package allcast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
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
