//go:build unix

package allcast_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/allcast/allcast"
)

// survive gathers with those who live, until its input ends on all of them.
func survive() int {
	if err := surviving(context.Background(), os.Getenv("ALLCAST_TEST_ALGO")); err != nil {
		_, _ = fmt.Fprintln(os.Stdout, "failed:", err)
		return 1
	}
	_, _ = fmt.Fprintln(os.Stdout, "done")
	return 0
}

func surviving(ctx context.Context, algo string) error {
	world, err := allcast.Join(ctx, allcast.Options{})
	if err != nil {
		return err
	}
	var over atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		over.Store(true)
	}()
	c := world
	for {
		err := gatherTogether(ctx, c, algo, &over)
		if err == nil {
			return world.Close()
		}
		if !errors.Is(err, allcast.ErrRankLost) {
			return err
		}
		next, err := c.Shrink(ctx)
		if err != nil {
			return err
		}
		if c != world {
			if err := c.Close(); err != nil {
				return err
			}
		}
		c = next
	}
}

// told is how many operations on a communicator are told of. Nobody may be reading: more
// could fill the pipe.
const told = 40

// gatherTogether gathers until it is over on all ranks. The data is different for every
// communicator and every operation.
func gatherTogether(ctx context.Context, c *allcast.Comm, algo string, over *atomic.Bool) error {
	for i := uint64(0); ; i++ {
		if err := gathers(ctx, c, uint64(c.Size())<<32|i, 100_000, algo); err != nil {
			return err
		}
		if i < told {
			_, _ = fmt.Fprintln(os.Stdout, "gathered", c.Size(), algo)
		}
		flag := []byte{0}
		if over.Load() {
			flag[0] = 1
		}
		if err := c.Allreduce(ctx, nil, flag, allcast.Uint8, allcast.Min); err != nil {
			return err
		}
		if flag[0] == 1 {
			return nil
		}
	}
}

// TestSurvive kills three of eight ranks, one after the other, at random moments: the
// others go on with seven, six and five, and with the right data.
func TestSurvive(t *testing.T) {
	const size = 8
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	for _, tt := range []struct {
		algo    string
		victims []int
	}{
		{"mcast", []int{0, 1, 7}}, {"ring", []int{0, 1, 7}}, {"mcast", r.Perm(size)[:3]},
	} {
		t.Run(fmt.Sprintf("%s/%v", tt.algo, tt.victims), func(t *testing.T) {
			all := job(t, size, "survive", "ALLCAST_TEST_ALGO="+tt.algo, "ALLCAST_TIMEOUT=5s")
			living := all
			awaitGathers(t, living, size, tt.algo)
			for n, victim := range tt.victims {
				// Anywhere in what it does: between two operations, or in one.
				for range r.IntN(told / 2) {
					all[victim].until("gathered")
				}
				if err := all[victim].cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				killed := time.Now()
				living = slices.DeleteFunc(slices.Clone(living), func(p *process) bool { return p == all[victim] })
				awaitGathers(t, living, size-n-1, tt.algo)
				t.Logf("rank %d killed: %d ranks had gathered again after %v", victim, len(living), time.Since(killed).Round(time.Millisecond))
			}
			ending := time.Now()
			for _, p := range living {
				_ = p.in.Close()
			}
			for rank, p := range all {
				if slices.Contains(tt.victims, rank) {
					continue
				}
				if !p.until("done") {
					t.Errorf("rank %d said %q", rank, p.last)
				}
				if err := p.cmd.Wait(); err != nil {
					t.Errorf("rank %d: %v", rank, err)
				}
			}
			t.Logf("all had left after %v", time.Since(ending).Round(time.Millisecond))
		})
	}
}

// awaitGathers waits until all processes have gathered as so many.
func awaitGathers(t *testing.T, all []*process, size int, algo string) {
	t.Helper()
	for _, p := range all {
		if want := fmt.Sprintf("gathered %d %s", size, algo); !p.until(want) {
			t.Fatalf("one said %q, want %q", p.last, want)
		}
	}
}

// TestSurviveAtOnce kills three ranks at the same time: the survivors see some of them die
// while they agree, or right after.
func TestSurviveAtOnce(t *testing.T) {
	const size = 8
	for _, victims := range [][]int{{0, 1, 2}, {0, 4, 6}, {5, 6, 7}} {
		all := job(t, size, "survive", "ALLCAST_TEST_ALGO=mcast", "ALLCAST_TIMEOUT=5s")
		awaitGathers(t, all, size, "mcast")
		var living []*process
		for rank, p := range all {
			if !slices.Contains(victims, rank) {
				living = append(living, p)
			} else if err := p.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		awaitGathers(t, living, size-len(victims), "mcast")
		for _, p := range living {
			_ = p.in.Close()
		}
		for _, p := range living {
			if !p.until("done") {
				t.Errorf("%v died: one of the others said %q", victims, p.last)
			}
		}
	}
}

// TestStoppedIsLeftOut stops a rank for so long that the others go on without it. When it
// runs again, it must learn that, and neither hang nor go on alone.
func TestStoppedIsLeftOut(t *testing.T) {
	const size = 4
	for _, victim := range []int{0, 2} {
		all := job(t, size, "survive", "ALLCAST_TEST_ALGO=mcast", "ALLCAST_TIMEOUT=1s")
		awaitGathers(t, all, size, "mcast")
		if err := all[victim].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		living := slices.Delete(slices.Clone(all), victim, victim+1)
		awaitGathers(t, living, size-1, "mcast")
		if err := all[victim].cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("failed: allcast: shrink: rank %d was taken for lost", victim)
		if !all[victim].until("failed") || !strings.HasPrefix(all[victim].last, want) {
			t.Errorf("rank %d said %q, want %q", victim, all[victim].last, want)
		}
		for _, p := range living {
			_ = p.in.Close()
		}
		for _, p := range living {
			if !p.until("done") {
				t.Errorf("one of the others said %q", p.last)
			}
		}
	}
}
