package allcast_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/allcast/allcast"
)

// descriptors is how many files and sockets this process has open, -1 where the
// system does not tell.
func descriptors() int {
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(d)
}

// soon waits until a condition holds. What ends in the background ends soon, but
// not at once.
func soon(f func() bool) bool {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); runtime.Gosched() {
		if f() {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return f()
}

func TestNothingIsLeftBehind(t *testing.T) {
	use := func() {
		ranks(t, 5, allcast.Options{Subgroups: 2}, func(ctx context.Context, c *allcast.Comm) error {
			got := make([]byte, 5*10_000)
			return errors.Join(
				c.Allgather(ctx, pattern(1, c.Rank(), 10_000), got, allcast.WithAlgorithm("mcast")),
				c.Allgather(ctx, pattern(1, c.Rank(), 10_000), got, allcast.WithAlgorithm("linear")))
		})
	}
	use() // the runtime opens what it keeps
	goroutines, files := runtime.NumGoroutine(), descriptors()
	use()
	if !soon(func() bool { return runtime.NumGoroutine() <= goroutines }) {
		var b bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
		t.Errorf("%d goroutines before, %d after:\n%s", goroutines, runtime.NumGoroutine(), b.String())
	}
	if !soon(func() bool { return descriptors() <= files }) {
		t.Errorf("%d descriptors before, %d after", files, descriptors())
	}
}

func TestCommunicatorsShareSocketsAndWorkers(t *testing.T) {
	// One process is all ranks here, so that what others do is counted too.
	const size = 4
	ranks(t, size, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
		use := func() error {
			c, err := world.Dup(ctx)
			if err != nil {
				return err
			}
			got := make([]byte, size*10_000)
			if err := c.Allgather(ctx, pattern(1, c.Rank(), 10_000), got, allcast.WithAlgorithm("mcast")); err != nil {
				return err
			}
			return world.Barrier(ctx)
		}
		if err := use(); err != nil {
			return err
		}
		if err := world.Barrier(ctx); err != nil {
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
		// A peer's writer begins when it is first needed, which may be now.
		if g, f := runtime.NumGoroutine(), descriptors(); world.Rank() == 0 && (g > goroutines+size*size || f > files+size) {
			t.Errorf("%d goroutines and %d descriptors with 1 communicator, %d and %d with 21", goroutines, files, g, f)
		}
		return world.Barrier(ctx)
	})
}
