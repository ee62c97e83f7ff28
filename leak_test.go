package allcast_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
	"github.com/allcast/allcast/internal/testenv"
)

// descriptors returns the number of open files and sockets of this process, or -1 if it is unknown.
func descriptors() int {
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(d)
}

func TestNoLeaks(t *testing.T) {
	defer testenv.NoLeaks(t)
	use := func() {
		allcasttest.Run(t, 5, allcast.Options{Subgroups: 2}, func(ctx context.Context, c *allcast.Comm) error {
			return errors.Join(
				calltest.Allgather(ctx, c, 1, 10_000, "mcast"), calltest.Allgather(ctx, c, 1, 10_000, "linear"))
		})
	}
	use() // the runtime opens files once and keeps them
	files := descriptors()
	use()
	if !testenv.Soon(func() bool { return descriptors() <= files }) {
		t.Errorf("%d descriptors before, %d after", files, descriptors())
	}
}

func TestCommunicatorsShareSocketsAndWorkers(t *testing.T) {
	// All ranks are in this process, so the counts include those of the other ranks.
	const size = 4
	allcasttest.Run(t, size, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
		use := func() error {
			c, err := world.Dup(ctx)
			if err != nil {
				return err
			}
			if err := calltest.Allgather(ctx, c, 1, 10_000, "mcast"); err != nil {
				return err
			}
			return world.Barrier(ctx)
		}
		// Ranks connect when they first send something to each other, and a rank may have sent before the other one has
		// accepted the connection. After an Alltoall both have: each has received something.
		mesh := calltest.Collectives["alltoall"](ctx, world, calltest.OnHeap, 1, 100, "pairwise")
		if err := errors.Join(mesh, use(), world.Barrier(ctx)); err != nil {
			return err
		}
		goroutines, files := runtime.NumGoroutine(), descriptors()
		for range 20 {
			if err := use(); err != nil {
				return err
			}
		}
		if err := world.Barrier(ctx); err != nil {
			return err
		}
		// The writer of a peer starts on demand, which may be now. Others are about to end.
		var g, f int
		fits := func() bool {
			g, f = runtime.NumGoroutine(), descriptors()
			return g <= goroutines+size*size && f <= files+size
		}
		if world.Rank() == 0 && !testenv.Soon(fits) {
			t.Errorf("%d goroutines and %d descriptors with 1 communicator, %d and %d with 21",
				goroutines, files, g, f)
		}
		return world.Barrier(ctx)
	})
}
