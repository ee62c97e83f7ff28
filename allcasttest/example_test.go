package allcasttest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
)

// sumOfRanks is the code under test: a part of a program that communicates.
func sumOfRanks(ctx context.Context, c *allcast.Comm) (int64, error) {
	sum := []int64{int64(c.Rank())}
	err := allcast.AllreduceSlice(ctx, c, nil, sum, allcast.Sum)
	return sum[0], err
}

func ExampleRun() {
	var t *testing.T // the argument of a test function

	allcasttest.Run(t, 4, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		sum, err := sumOfRanks(ctx, c)
		if err == nil && sum != 6 {
			err = fmt.Errorf("sum %d, want 6", sum)
		}
		return err
	})
}

// Rank 1 gives up. The errors of the other ranks name it.
func ExampleJoinAll() {
	errs := allcasttest.JoinAll(context.Background(), make([]allcast.Options, 3),
		func(ctx context.Context, c *allcast.Comm) error {
			if c.Rank() == 1 {
				return c.Abort()
			}
			return c.Barrier(ctx)
		})
	for rank, err := range errs {
		var failed *allcast.RankError
		if errors.As(err, &failed) {
			fmt.Printf("rank %d: rank %d failed\n", rank, failed.Rank)
		}
	}
	// Output:
	// rank 0: rank 1 failed
	// rank 2: rank 1 failed
}
