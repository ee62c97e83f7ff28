//go:build unix

package observe

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/e2e"
	"github.com/allcast/allcast/internal/observe"
	"github.com/allcast/allcast/internal/testenv"
)

// TestInspectStoppedRank stops a rank. That rank does not answer, and the answers of the others name it.
func TestInspectStoppedRank(t *testing.T) {
	testenv.SocketDir(t)
	const size, victim = 4, 2
	all := e2e.Start(t, size, "gather", e2e.AlgoVar+"=mcast", "ALLCAST_TIMEOUT=50s")
	for rank, p := range all {
		if !p.Until("gathered") {
			t.Fatalf("rank %d did not start: %s", rank, p.Last())
		}
		if rank != victim {
			go p.Drain()
		}
	}
	if err := all[victim].Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	sockets := observe.Find()
	if len(sockets) != size {
		t.Fatalf("found %d ranks, want %d", len(sockets), size)
	}
	named := func() bool {
		views := ask(t, sockets)
		for i := range views {
			if v := &views[i]; v.Answers() == (v.Rank == victim) {
				return false // a rank is slow to answer
			}
		}
		d := observe.Diagnose(sockets[0].Job, views)
		t.Log(d.Text)
		return d.Rank == victim && strings.Contains(d.Text, "does not answer")
	}
	// The others continue until they need the victim.
	if !testenv.Soon(named) {
		t.Errorf("the other ranks do not name rank %d", victim)
	}
}

// ask asks all ranks for their state, and gives them a second to answer.
func ask(t *testing.T, sockets []observe.Socket) []observe.View {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	views := make([]observe.View, len(sockets))
	var wg sync.WaitGroup
	for i, s := range sockets {
		wg.Go(func() {
			views[i].Socket = s
			views[i].State, views[i].Err = observe.Ask(ctx, observe.Addr{Network: "unix", Address: s.Path}, 10)
		})
	}
	wg.Wait()
	return views
}
