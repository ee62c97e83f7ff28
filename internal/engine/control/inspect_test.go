package control

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/allcast/allcast/internal/observe"
	"github.com/allcast/allcast/internal/wire"
)

// gather starts an Allgather of n bytes per rank.
func gather(t *testing.T, e *engine, n int64) *Request {
	t.Helper()
	counts := make([]int64, e.cfg.Size)
	for i := range counts {
		counts[i] = n
	}
	recv := make([]byte, n*int64(len(counts)))
	r, err := e.Start(World, Call{Kind: wire.Allgather, Algo: Multicast, Counts: counts, Recv: recv})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The state of a rank that waits names the rank that it waits for.
func TestStateOfWaiting(t *testing.T) {
	all := newMemNet(2).engines(t)
	r := gather(t, all[0], 1000)
	s := all[0].State(observe.Size)
	if !s.Answers || s.Rank != 0 || s.Size != 2 || len(s.Comms) != 2 {
		t.Fatalf("%+v", s)
	}
	world := s.Comms[World]
	if world.Name != "world" || len(world.Ops) != 1 || world.Calls != 1 {
		t.Fatalf("%+v", world)
	}
	op := world.Ops[0]
	if op.Op != "allgather" || op.Algo != Multicast || op.Phase != "barrier" || op.WaitsOn != 1 ||
		op.Bytes != 2000 || !strings.Contains(op.Missing, "rank 1") {
		t.Errorf("%+v", op)
	}
	gather(t, all[1], 1000)
	<-r.Done()
	s = all[0].State(observe.Size)
	if len(s.Comms[World].Ops) != 0 || len(s.Peers) != 1 || !s.Peers[0].Heard || s.Peers[0].Rank != 1 {
		t.Errorf("afterwards: %+v", s)
	}
	seen := map[string]bool{}
	for _, e := range s.Events {
		seen[e.What+" "+e.How] = true
	}
	for _, want := range []string{
		"begun allgather", "phase barrier", "phase multicast", "sent barrier", "received barrier", "ended allgather",
	} {
		if !seen[want] {
			t.Errorf("no event %q in %v", want, seen)
		}
	}
	if s := all[0].State(0); len(s.Events) != 0 || s.Recorded == 0 {
		t.Errorf("%d of %d events, and none were asked for", len(s.Events), s.Recorded)
	}
}

// State and Metrics answer in bounded time, and say that a stuck node does not.
func TestStateOfStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newMemNet(1).engines(t)[0]
		stuck, release := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { e.do(func() { close(stuck); <-release }) })
		<-stuck
		if s := e.State(1); s.Answers || s.Size != 1 {
			t.Errorf("%+v", s)
		}
		if m := e.Metrics(); m.Answers || len(m.Numbers) == 0 || m.Tallies != nil {
			t.Errorf("%+v", m)
		}
		close(release)
		wg.Wait()
		if s := e.State(1); !s.Answers {
			t.Errorf("%+v", s)
		}
	})
}

func TestStateWhenClosed(t *testing.T) {
	e := newMemNet(1).engines(t)[0]
	_ = e.Close()
	if s := e.State(1); s.Answers {
		t.Errorf("%+v", s)
	}
}

// All calls of a communicator fail for the same reason. It is dumped and logged once, before any caller
// knows.
func TestFailureIsToldOnce(t *testing.T) {
	n := newMemNet(2)
	var log bytes.Buffer
	dumps := make(chan *observe.Dump, 8)
	n.configure = func(rank int, cfg *Config) {
		if rank == 0 {
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			cfg.Failed = func(d *observe.Dump) { dumps <- d }
		}
	}
	all := n.engines(t)
	e := all[0]
	a, b := gather(t, e, 1000), gather(t, e, 500)
	if err := all[1].Abort(World); err != nil {
		t.Fatal(err)
	}
	<-a.Done()
	<-b.Done()
	if a.Err() == nil || b.Err() == nil || len(dumps) != 1 {
		t.Fatalf("%v, %v, written down %d times", a.Err(), b.Err(), len(dumps))
	}
	d := <-dumps
	f := &d.Failure
	if f.Culprit != 1 || f.Reason != "aborted" || f.Op != "allgather" || f.Phase != "barrier" || len(d.Events) == 0 {
		t.Errorf("%+v", f)
	}
	e.do(func() {
		if n := strings.Count(log.String(), "operation failed"); n != 1 || !strings.Contains(log.String(), "culprit=1") {
			t.Errorf("%d warnings:\n%s", n, log.String())
		}
	})
	m := e.Metrics()
	if n := m.Tallies[observe.Series{Op: "allgather", Algo: Multicast}].Outcomes["aborted"]; n != 2 {
		t.Errorf("%d aborted calls were counted", n)
	}
}
