package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/calltest"
)

// AlgoVar names the algorithm that Gather uses.
const AlgoVar = "ALLCAST_TEST_ALGO"

// Gather is a role: it joins and calls Allgather until a call fails. It says "gathered N" after each
// call, and at the end "failed RANK" with the rank that the error names.
func Gather() int {
	ctx := context.Background()
	c, err := allcast.Join(ctx, allcast.Options{})
	if err != nil {
		Say("join:", err)
		return 1
	}
	for i := uint64(0); ; i++ {
		err := calltest.Allgather(ctx, c, i, 200_000, os.Getenv(AlgoVar))
		var failed *allcast.RankError
		switch {
		case err == nil:
			Say("gathered", i)
		case errors.As(err, &failed):
			Say("failed", failed.Rank)
			_ = c.Close()
			return 0
		default:
			Say("unexpected:", err)
			return 1
		}
	}
}

// Reported is the number of operations per communicator that GatherTogether reports. More lines could
// fill the pipe if the test does not read them.
const Reported = 40

// GatherTogether calls Allgather on c until over is set on all ranks. Every communicator and every
// operation has different data. It says "gathered SIZE ALGORITHM" after each of the first calls.
func GatherTogether(ctx context.Context, c *allcast.Comm, algo string, over *atomic.Bool) error {
	for i := uint64(0); ; i++ {
		if err := calltest.Allgather(ctx, c, uint64(c.Size())<<32|i, 100_000, algo); err != nil {
			return err
		}
		if i < Reported {
			Say(fmt.Sprintf("gathered %d %s", c.Size(), algo))
		}
		flag := []byte{0}
		if over.Load() {
			flag[0] = 1
		}
		if err := c.Allreduce(ctx, nil, flag, allcast.Uint8, allcast.Min); err != nil {
			return err
		}
		if flag[0] == 1 {
			return nil
		}
	}
}
