//go:build unix

package deaths

import (
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/e2e"
)

// TestDeath kills or stops a rank at a random moment. Every survivor must name it.
func TestDeath(t *testing.T) {
	const size = 8
	times := 2
	if n := os.Getenv(fullVar); n != "" {
		_, _ = fmt.Sscan(n, &times)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range times {
		for _, tt := range []struct {
			sig  syscall.Signal
			algo string
		}{{syscall.SIGKILL, "mcast"}, {syscall.SIGKILL, "ring"}, {syscall.SIGSTOP, "mcast"}} {
			t.Run(fmt.Sprintf("%d/%v/%s", i, tt.sig, tt.algo), func(t *testing.T) {
				all := e2e.Start(t, size, "gather", e2e.AlgoVar+"="+tt.algo, "ALLCAST_TIMEOUT=2s")
				victim := r.IntN(size)
				if !all[victim].Until("gathered") {
					t.Fatalf("rank %d did not start: %s", victim, all[victim].Last())
				}
				time.Sleep(time.Duration(r.IntN(20_000)) * time.Microsecond) // to a random point of a call
				if err := all[victim].Signal(tt.sig); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				for rank, p := range all {
					if rank == victim {
						continue
					}
					want := fmt.Sprintf("failed %d", victim)
					if !p.Until("failed") || p.Last() != want {
						t.Errorf("rank %d said %q, want %q", rank, p.Last(), want)
					}
				}
				t.Logf("rank %d, %v: all survivors had named it after %v",
					victim, tt.sig, time.Since(start).Round(time.Millisecond))
				for rank, p := range all {
					if rank == victim {
						continue
					}
					if err := p.Wait(); err != nil {
						t.Errorf("rank %d: %v", rank, err)
					}
				}
			})
		}
	}
}
