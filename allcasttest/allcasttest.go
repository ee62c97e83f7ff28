// Package allcasttest joins the ranks of a job inside one process, so that tests need no launcher.
//
// The ranks are goroutines. They communicate over the loopback interface, with multicast where the
// machine has it, exactly as separate processes would.
package allcasttest

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/joinhook"
)

// timeout bounds Run and JoinAll, so that a test whose ranks wait for each other fails with an error.
const timeout = 10 * time.Minute

// Run joins a job of size ranks and calls f once per rank, each in its own goroutine. It closes each
// rank's communicator when f returns, and returns when all ranks have ended.
//
// The ranks share o, except for Rank, Size and Addr, which Run sets. An error from Join, f or Close
// fails the test. The context of f ends with the test, or after ten minutes. f must not call t.Fatal or
// t.FailNow: it returns an error instead.
func Run(t testing.TB, size int, o allcast.Options, f func(ctx context.Context, c *allcast.Comm) error) {
	t.Helper()
	for rank, err := range JoinAll(t.Context(), slices.Repeat([]allcast.Options{o}, size), f) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// JoinAll is Run for ranks whose options differ, or that are expected to fail. It runs one rank per
// element of opts and returns one error per rank. The context of f ends with ctx, or after ten minutes.
func JoinAll(
	ctx context.Context, opts []allcast.Options, f func(ctx context.Context, c *allcast.Comm) error,
) []error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return slices.Repeat([]error{err}, len(opts))
	}
	// Rank 0 takes over the listener, because another process could take a port that is closed in between.
	hooks := joinhook.From(ctx)
	hooks.Listener = l
	join := joinhook.With(ctx, hooks)
	errs := make([]error, len(opts))
	var wg sync.WaitGroup
	for rank, o := range opts {
		wg.Go(func() {
			o.Rank, o.Size, o.Addr = rank, len(opts), l.Addr().String()
			c, err := allcast.Join(join, o)
			if err != nil {
				errs[rank] = err
				return
			}
			// Deferred, so that the others do not wait for a rank whose goroutine ends.
			defer func() { errs[rank] = errors.Join(errs[rank], c.Close()) }()
			errs[rank] = f(ctx, c)
		})
	}
	wg.Wait()
	return errs
}
