//go:build unix

package allcast_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/allcast/allcast"
)

// comeBack gathers for ever. When a rank is lost it leaves, and joins again with whoever
// comes: the next generation of the job.
func comeBack() int {
	ctx := context.Background()
	var over atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		over.Store(true)
	}()
	for {
		world, err := allcast.Join(ctx, allcast.Options{})
		if err != nil {
			_, _ = fmt.Fprintln(os.Stdout, "join:", err)
			return 1
		}
		err = gatherTogether(ctx, world, "mcast", &over)
		closed := world.Close()
		switch {
		case err == nil && closed == nil:
			_, _ = fmt.Fprintln(os.Stdout, "done")
			return 0
		case err == nil || !errors.Is(err, allcast.ErrRankLost):
			_, _ = fmt.Fprintln(os.Stdout, "failed:", err, closed)
			return 1
		}
	}
}

// TestRejoin kills ranks one after the other, rank 0 too, and starts them again: the
// others leave, all join again, and go on with the right data.
func TestRejoin(t *testing.T) {
	const size = 4
	all := job(t, size, "rejoin", "ALLCAST_TIMEOUT=5s")
	env := all[0].cmd.Env
	for _, victim := range []int{2, 0, 3} {
		for r, p := range all {
			if !p.until("gathered 4") {
				t.Fatalf("rank %d: %q", r, p.last)
			}
		}
		if err := all[victim].cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		all[victim] = begin(t, exec.Command(os.Args[0]), append(env[:len(env):len(env)], fmt.Sprintf("RANK=%d", victim)))
		// What it says from now on is of the next generation, sooner or later.
		if !all[victim].until("gathered 4") {
			t.Fatalf("rank %d came back and said %q", victim, all[victim].last)
		}
	}
	for _, p := range all {
		_ = p.in.Close()
	}
	for r, p := range all {
		if !p.until("done") {
			t.Errorf("rank %d: %q", r, p.last)
		}
	}
}
