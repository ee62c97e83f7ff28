package allcast_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/allcast/allcast"
)

// crash ends a rank as if its process had been killed.
func crash(c *allcast.Comm) { c.Vanish() }

// The error of a call says which rank failed, and why.
func ExampleRankError() {
	local(3, func(ctx context.Context, c *allcast.Comm) error {
		err := c.Barrier(ctx)
		if c.Rank() == 1 {
			crash(c)
			return nil
		}
		if err == nil { // otherwise the crash has already ended the first barrier here
			err = c.Barrier(ctx)
		}
		var failed *allcast.RankError
		if !errors.As(err, &failed) {
			return err // the call was invalid, for example
		}
		if c.Rank() == 0 {
			fmt.Printf("%s failed because of rank %d\n", failed.Op, failed.Rank)
			fmt.Println("lost:", errors.Is(err, allcast.ErrRankLost))
			fmt.Println("aborted:", errors.Is(err, allcast.ErrAborted))
		}
		return nil
	})
	// Output:
	// barrier failed because of rank 1
	// lost: true
	// aborted: false
}

// When a rank dies, the others continue without it.
func ExampleComm_Shrink() {
	const steps = 4
	local(4, func(ctx context.Context, world *allcast.Comm) error {
		c := world
		mine, sum := []int{1 << world.Rank()}, make([]int, 1)
		for step := 0; step < steps; step++ {
			if world.Rank() == 2 && step == 1 {
				crash(world)
				return nil
			}
			err := allcast.AllreduceSlice(ctx, c, mine, sum, allcast.Sum)
			if err == nil {
				continue
			}
			var failed *allcast.RankError
			if !errors.As(err, &failed) {
				return err // a smaller communicator would not help
			}
			if c, err = c.Shrink(ctx); err != nil {
				return err
			}
			// Some ranks may have completed a step that others have not. All repeat it.
			from := []int{step}
			if err := allcast.AllreduceSlice(ctx, c, nil, from, allcast.Min); err != nil {
				return err
			}
			step = from[0] - 1
		}
		if c.Rank() == 0 {
			fmt.Printf("%d of %d ranks have completed %d steps, with the sum %b\n",
				c.Size(), world.Size(), steps, sum[0])
		}
		return nil
	})
	// Output: 3 of 4 ranks have completed 4 steps, with the sum 1011
}

// A rank that cannot continue tells the others, which do not have to wait for a timeout.
func ExampleComm_Abort() {
	local(2, func(ctx context.Context, c *allcast.Comm) error {
		if c.Rank() == 1 {
			return c.Abort() // it found bad input, for example
		}
		err := c.Barrier(ctx)
		var failed *allcast.RankError
		if errors.Is(err, allcast.ErrAborted) && errors.As(err, &failed) {
			fmt.Println("rank", failed.Rank, "gave up")
		}
		return nil
	})
	// Output: rank 1 gave up
}
