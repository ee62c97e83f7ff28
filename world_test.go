package allcast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast"
)

// freeAddr is an address on loopback that nobody listens on.
func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// ranks runs f as every rank of a job, in goroutines of this process.
func ranks(t testing.TB, size int, o allcast.Options, f func(ctx context.Context, c *allcast.Comm) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	o.Size, o.Addr = size, freeAddr(t)
	errs := make([]error, size)
	var wg sync.WaitGroup
	for r := range size {
		wg.Go(func() {
			o := o
			o.Rank = r
			c, err := allcast.Join(ctx, o)
			if err != nil {
				errs[r] = err
				return
			}
			errs[r] = errors.Join(f(ctx, c), c.Close())
		})
	}
	wg.Wait()
	for r, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// pattern is what a rank contributes.
func pattern(seed uint64, rank, n int) []byte {
	b := make([]byte, n)
	r := rand.NewPCG(seed, uint64(rank))
	for i := range b {
		b[i] = byte(r.Uint64())
	}
	return b
}

func TestAllgather(t *testing.T) {
	for _, size := range []int{1, 2, 3, 5, 8} {
		for _, algo := range allcast.Algorithms("allgather") {
			t.Run(fmt.Sprintf("P=%d/%s", size, algo), func(t *testing.T) {
				ranks(t, size, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
					for i, n := range []int{0, 1, 4095, 4096, 4097, 1<<20 + 13} {
						var want []byte
						for r := range size {
							want = append(want, pattern(uint64(i), r, n)...)
						}
						got := make([]byte, size*n)
						r, err := c.StartAllgather(pattern(uint64(i), c.Rank(), n), got, allcast.WithAlgorithm(algo))
						if err != nil {
							return err
						}
						if err := r.Wait(ctx); err != nil {
							return fmt.Errorf("%d bytes: %w", n, err)
						}
						if a := r.Info().Algorithm; a != algo {
							return fmt.Errorf("%s ran", a)
						}
						if !bytes.Equal(got, want) {
							return fmt.Errorf("%d bytes by %s: wrong data", n, algo)
						}
					}
					return nil
				})
			})
		}
	}
}
