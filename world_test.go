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
			if r == 0 {
				o = o.On(l)
			}
			c, err := allcast.Join(ctx, o)
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
