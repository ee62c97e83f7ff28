package allcast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
	"github.com/allcast/allcast/internal/testenv"
)

// cycles returns the number of cycles of a test for leaks. ALLCAST_TEST_CYCLES overrides it, for long runs by hand.
func cycles(t *testing.T, n int) int {
	t.Helper()
	s := os.Getenv("ALLCAST_TEST_CYCLES")
	if s == "" {
		return n
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("ALLCAST_TEST_CYCLES: %v", err)
	}
	return n
}

// warmUp is the number of cycles after which pools and caches have their final size.
const warmUp = 10

// usage is what this process uses.
type usage struct {
	goroutines, descriptors, mappings int
	heap                              int64 // bytes
}

func measure() (u usage) {
	for range 3 { // a pool keeps memory for one more collection
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	maps, _ := os.ReadFile("/proc/self/maps") // where it is missing, mappings are not compared
	return usage{runtime.NumGoroutine(), descriptors(), bytes.Count(maps, []byte("\n")), int64(m.HeapAlloc)}
}

// checkLeaks compares the usage after the first cycles with the one after all. With the race detector, pools keep all
// buffers that a connection has ever needed, so the heap says little.
func checkLeaks(t *testing.T, before usage, cycles int) {
	t.Helper()
	const heapPerCycle, heapNoise, noise = 500, 256 << 10, 20
	var after usage
	fits := func() bool {
		after = measure()
		return after.goroutines <= before.goroutines+noise && after.descriptors <= before.descriptors+noise &&
			after.mappings <= before.mappings+noise &&
			(testenv.Race || after.heap <= before.heap+heapNoise+int64(cycles)*heapPerCycle)
	}
	if !testenv.Soon(fits) {
		t.Errorf("%d cycles: before %+v, after %+v", cycles, before, after)
	}
	t.Logf("%d cycles: before %+v, after %+v", cycles, before, after)
}

// A process that joins and leaves many jobs, one after the other, needs no more for the last one than for the first.
func TestJoinCycles(t *testing.T) {
	var before usage
	n := cycles(t, 50)
	for i := range warmUp + n {
		if i == warmUp {
			before = measure()
		}
		allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
			return errors.Join(
				calltest.Allgather(ctx, c, uint64(i), 20_000, "mcast"), calltest.Allgather(ctx, c, 1, 20_000, "ring"))
		})
	}
	checkLeaks(t, before, n)
}

// A job makes and closes many communicators, one after the other. None of them has to share its multicast groups,
// although a socket can join only few.
func TestSubsetCycles(t *testing.T) {
	n := cycles(t, 50)
	var log bytes.Buffer
	o := allcast.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	allcasttest.Run(t, 4, o, func(ctx context.Context, c *allcast.Comm) error {
		var before usage
		for i := range warmUp + n {
			if err := c.Barrier(ctx); err != nil {
				return err
			}
			if i == warmUp && c.Rank() == 0 {
				before = measure()
			}
			for _, members := range [][]int{{0, 1}, {2, 3}, {1, 2, 0}, {3, 1, 0, 2}} {
				if err := subsetCycle(ctx, c, members, uint64(i)); err != nil {
					return fmt.Errorf("cycle %d, members %v: %w", i, members, err)
				}
			}
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		if c.Rank() == 0 {
			checkLeaks(t, before, n)
			if !testenv.Soon(func() bool { return c.Comms() <= 2 }) {
				t.Errorf("%d communicators are left", c.Comms())
			}
		}
		return c.Barrier(ctx)
	})
	if log.Len() > 0 {
		t.Error(log.String())
	}
}

// subsetCycle makes a communicator, uses it and closes it, if this rank is a member.
func subsetCycle(ctx context.Context, c *allcast.Comm, members []int, seed uint64) error {
	for _, m := range members {
		if m != c.Rank() {
			continue
		}
		sub, err := c.Subset(ctx, members, "cycle")
		if err != nil {
			return err
		}
		return errors.Join(calltest.Allgather(ctx, sub, seed, 10_000, "mcast"), sub.Close())
	}
	return nil
}
