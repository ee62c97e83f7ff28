//go:build unix

package deaths

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/e2e"
)

// rejoin is a role: it gathers until its input ends on all ranks. When a rank is lost, it leaves and
// joins again. The ranks that join again form the next generation of the job.
func rejoin() int {
	ctx := context.Background()
	over := inputEnded()
	for {
		world, err := allcast.Join(ctx, allcast.Options{})
		if err != nil {
			e2e.Say("join:", err)
			return 1
		}
		err = e2e.GatherTogether(ctx, world, "mcast", over)
		closed := world.Close()
		switch {
		case err == nil && closed == nil:
			e2e.Say("done")
			return 0
		case err == nil || !errors.Is(err, allcast.ErrRankLost):
			e2e.Say("failed:", err, closed)
			return 1
		}
	}
}

// inputEnded returns a flag that is set when the standard input ends.
func inputEnded() *atomic.Bool {
	var over atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		over.Store(true)
	}()
	return &over
}

// TestRejoin kills ranks one after the other, including rank 0, and restarts each. All ranks join again and
// continue with correct data.
func TestRejoin(t *testing.T) {
	const size = 4
	all := e2e.Start(t, size, "rejoin")
	for _, victim := range []int{2, 0, 3} {
		for rank, p := range all {
			if !p.Until("gathered 4") {
				t.Fatalf("rank %d: %q", rank, p.Last())
			}
		}
		if err := all[victim].Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		all[victim] = all[victim].Restart(t)
		// The new process can only gather with the next generation.
		if !all[victim].Until("gathered 4") {
			t.Fatalf("the restarted rank %d said %q", victim, all[victim].Last())
		}
	}
	for _, p := range all {
		p.EndInput()
	}
	for rank, p := range all {
		if !p.Until("done") {
			t.Errorf("rank %d: %q", rank, p.Last())
		}
	}
}
