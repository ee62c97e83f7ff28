package allcast_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/testenv"
)

// A rank that can open no more connections blames itself, and its error names the limit. Other ranks blame it, too.
func TestOutOfFiles(t *testing.T) {
	testenv.Soak(t, "a file that something else closes lets a connection through")
	const size = 3
	var mu sync.Mutex
	errs := make([]error, size)
	var joined, failed sync.WaitGroup
	joined.Add(size)
	failed.Add(size)
	var limit sync.Once
	restore := func() {}
	allcasttest.Run(t, size, allcast.Options{NoCalibration: true}, func(ctx context.Context, c *allcast.Comm) error {
		joined.Done()
		joined.Wait()
		limit.Do(func() { restore = testenv.NoMoreFiles(t) })
		err := c.Allgather(ctx, make([]byte, 1<<20), make([]byte, size<<20), allcast.WithAlgorithm("linear"))
		mu.Lock()
		errs[c.Rank()] = err
		mu.Unlock()
		failed.Done()
		failed.Wait()
		restore()
		return nil
	})
	for rank, err := range errs {
		e, ok := errors.AsType[*allcast.RankError](err)
		if !ok || !errors.Is(err, allcast.ErrRankLost) {
			t.Errorf("rank %d: %v", rank, err)
			continue
		}
		own := e.WorldRank == rank
		if !errors.Is(errs[e.WorldRank], syscall.EMFILE) || own != strings.Contains(err.Error(), "raise it with ulimit -n") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}
