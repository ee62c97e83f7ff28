package allcasttest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/testenv"
)

func TestRun(t *testing.T) {
	for _, size := range []int{1, 4} {
		var ran atomic.Int64
		allcasttest.Run(t, size, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
			ran.Add(1)
			sum, err := sumOfRanks(ctx, c)
			if want := int64(size * (size - 1) / 2); err == nil && (sum != want || c.Size() != size) {
				err = fmt.Errorf("sum %d over %d ranks, want %d", sum, c.Size(), want)
			}
			return err
		})
		if ran.Load() != int64(size) {
			t.Errorf("%d of %d ranks ran", ran.Load(), size)
		}
	}
}

func TestJoinAllReportsErrors(t *testing.T) {
	odd := errors.New("odd rank")
	errs := allcasttest.JoinAll(t.Context(), make([]allcast.Options, 4),
		func(_ context.Context, c *allcast.Comm) error {
			if c.Rank()%2 == 1 {
				return odd
			}
			return nil
		})
	for rank, err := range errs {
		if errors.Is(err, odd) != (rank%2 == 1) || rank%2 == 0 && err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// t.FailNow ends the goroutine of a rank. The other ranks fail after the timeout of the job, not of the test.
func TestJoinAllWithARankThatEnds(t *testing.T) {
	testenv.Soak(t, "Close waits for a timeout of 1 s, in which no other rank may be silent")
	opts := slices.Repeat([]allcast.Options{{Timeout: time.Second}}, 3)
	errs := allcasttest.JoinAll(t.Context(), opts,
		func(ctx context.Context, c *allcast.Comm) error {
			if c.Rank() == 1 {
				runtime.Goexit()
			}
			return c.Barrier(ctx)
		})
	var failed *allcast.RankError
	for _, rank := range []int{0, 2} {
		if !errors.As(errs[rank], &failed) || failed.Rank != 1 {
			t.Errorf("rank %d: got %v, want an error that names rank 1", rank, errs[rank])
		}
	}
}
