//go:build unix

package deaths

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/e2e"
	"github.com/allcast/allcast/internal/testenv"
)

// TestDeath kills or stops a rank after a random number of calls. Every survivor must name it.
func TestDeath(t *testing.T) {
	const size = 8
	times := 2
	if testenv.Soaking() {
		times = 20
	}
	r := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	for i := range times {
		for _, tt := range []struct {
			sig  syscall.Signal
			algo string
		}{{syscall.SIGKILL, "mcast"}, {syscall.SIGKILL, "ring"}, {syscall.SIGSTOP, "mcast"}} {
			t.Run(fmt.Sprintf("%d/%v/%s", i, tt.sig, tt.algo), func(t *testing.T) {
				victim, calls := r.IntN(size), 1+r.IntN(20)
				env := []string{e2e.AlgoVar + "=" + tt.algo}
				if tt.sig == syscall.SIGSTOP {
					testenv.Soak(t, stopsWait)
					env = append(env, "ALLCAST_TIMEOUT=2s")
				}
				all := e2e.Start(t, size, "gather", env...)
				for range calls {
					if !all[victim].Until("gathered") {
						t.Fatalf("rank %d ended: %s", victim, all[victim].Last())
					}
				}
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
