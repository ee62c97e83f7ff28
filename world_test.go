package allcast_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast"
)

// ranks runs f as every rank of a job, in goroutines of this process.
func ranks(t testing.TB, size int, o allcast.Options, f func(ctx context.Context, c *allcast.Comm) error) {
	t.Helper()
	opts := make([]allcast.Options, size)
	for r := range opts {
		opts[r] = o
	}
	for r, err := range joinAll(t, opts, f) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// joinAll is ranks for ranks that differ, and that may fail.
func joinAll(t testing.TB, opts []allcast.Options, f func(ctx context.Context, c *allcast.Comm) error) []error {
	t.Helper()
	return joinWatched(t, opts, nil, f)
}

// onSocket returns the hooks by which rank 0 of a job gets its socket.
func onSocket(l net.Listener, rank int) (h allcast.Hooks) {
	if rank == 0 {
		h.Listener = l
	}
	return h
}

// watch is allcast.Hooks.Watch.
type watch = func(comm uint32, seq uint64, what string)

// joinWatched is joinAll with a watch for each rank in watches.
func joinWatched(
	t testing.TB, opts []allcast.Options, watches map[int]watch, f func(ctx context.Context, c *allcast.Comm) error,
) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, len(opts))
	var wg sync.WaitGroup
	for r, o := range opts {
		wg.Go(func() {
			o.Rank, o.Size, o.Addr = r, len(opts), l.Addr().String()
			h := onSocket(l, r)
			h.Watch = watches[r]
			c, err := allcast.JoinHooked(ctx, o, h)
			if err != nil {
				errs[r] = err
				return
			}
			errs[r] = errors.Join(f(ctx, c), c.Close())
		})
	}
	wg.Wait()
	return errs
}

// pattern is what a rank contributes.
func pattern(seed uint64, rank, n int) []byte {
	b := make([]byte, n+8)
	r := rand.NewPCG(seed, uint64(rank))
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	return b[:n:n]
}
