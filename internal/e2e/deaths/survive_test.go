//go:build unix

package deaths

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/e2e"
	"github.com/allcast/allcast/internal/testenv"
)

// survive is a role: it gathers until its input ends on all ranks. When a rank is lost, it shrinks the
// communicator and continues.
func survive() int {
	if err := gatherAndShrink(context.Background(), os.Getenv(e2e.AlgoVar)); err != nil {
		e2e.Say("failed:", err)
		return 1
	}
	e2e.Say("done")
	return 0
}

func gatherAndShrink(ctx context.Context, algo string) error {
	world, err := allcast.Join(ctx, allcast.Options{})
	if err != nil {
		return err
	}
	over := inputEnded()
	c := world
	for {
		err := e2e.GatherTogether(ctx, c, algo, over)
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

// startSurvivors starts ranks with the role survive, and waits until all of them have gathered.
func startSurvivors(t *testing.T, size int, algo string, env ...string) []*e2e.Process {
	t.Helper()
	all := e2e.Start(t, size, "survive", append(env, e2e.AlgoVar+"="+algo)...)
	awaitGathers(t, all, size, algo)
	return all
}

// awaitGathers waits until all processes have gathered with size ranks.
func awaitGathers(t *testing.T, all []*e2e.Process, size int, algo string) {
	t.Helper()
	for _, p := range all {
		if want := fmt.Sprintf("gathered %d %s", size, algo); !p.Until(want) {
			t.Fatalf("a rank said %q, want %q", p.Last(), want)
		}
	}
}

// endSurvivors ends ranks and checks that they report no error.
func endSurvivors(t *testing.T, living []*e2e.Process) {
	t.Helper()
	for _, p := range living {
		p.EndInput()
	}
	for _, p := range living {
		if !p.Until("done") {
			t.Errorf("a survivor said %q, want done", p.Last())
		}
		if err := p.Wait(); err != nil {
			t.Errorf("a survivor ended with %v", err)
		}
	}
}

// TestSurvive kills three of eight ranks, one after the other, after a random number of calls. The others
// continue with seven, six and five ranks and with correct data. They notice the closed connections, long before
// the timeout.
func TestSurvive(t *testing.T) {
	const size = 8
	r := rand.New(rand.NewPCG(testenv.Seed(t), 1))
	for _, tt := range []struct {
		algo    string
		victims []int
	}{
		{"mcast", []int{0, 1, 7}}, {"ring", []int{0, 1, 7}}, {"mcast", r.Perm(size)[:3]},
	} {
		t.Run(fmt.Sprintf("%s/%v", tt.algo, tt.victims), func(t *testing.T) {
			all := startSurvivors(t, size, tt.algo)
			living := slices.Clone(all)
			for n, victim := range tt.victims {
				// A random moment, during an operation or between two.
				for range r.IntN(e2e.Reported / 2) {
					all[victim].Until("gathered")
				}
				if err := all[victim].Signal(syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				killed := time.Now()
				living = slices.DeleteFunc(living, func(p *e2e.Process) bool { return p == all[victim] })
				awaitGathers(t, living, size-n-1, tt.algo)
				t.Logf("rank %d killed: %d ranks had gathered again after %v",
					victim, len(living), time.Since(killed).Round(time.Millisecond))
			}
			ending := time.Now()
			endSurvivors(t, living)
			t.Logf("all ranks had left after %v", time.Since(ending).Round(time.Millisecond))
		})
	}
}

// TestSurviveSimultaneousDeaths kills three ranks at the same time. The survivors notice some deaths while
// they agree on others, or right afterwards.
func TestSurviveSimultaneousDeaths(t *testing.T) {
	const size = 8
	for _, victims := range [][]int{{0, 1, 2}, {0, 4, 6}, {5, 6, 7}} {
		all := startSurvivors(t, size, "mcast")
		var living []*e2e.Process
		for rank, p := range all {
			if !slices.Contains(victims, rank) {
				living = append(living, p)
			} else if err := p.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		awaitGathers(t, living, size-len(victims), "mcast")
		endSurvivors(t, living)
	}
}

// TestStoppedRankIsExcluded stops a rank for so long that the others continue without it. When the rank
// resumes, its Shrink must report that. It must neither hang nor continue alone.
func TestStoppedRankIsExcluded(t *testing.T) {
	testenv.Soak(t, stopsWait)
	const size = 4
	for _, victim := range []int{0, 2} {
		all := startSurvivors(t, size, "mcast", "ALLCAST_TIMEOUT=1s")
		if err := all[victim].Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		living := slices.Delete(slices.Clone(all), victim, victim+1)
		awaitGathers(t, living, size-1, "mcast")
		if err := all[victim].Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("failed: allcast: shrink: rank %d was declared lost", victim)
		if !all[victim].Until("failed") || !strings.HasPrefix(all[victim].Last(), want) {
			t.Errorf("rank %d said %q, want %q", victim, all[victim].Last(), want)
		}
		endSurvivors(t, living)
	}
}
