package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/testenv"
	"github.com/allcast/allcast/store"
)

// world is a job whose ranks are goroutines.
type world struct {
	t    *testing.T
	addr string
	root Config // of rank 0

	store   store.Store // nil if the ranks meet at addr
	shape   tree
	attempt int
}

// watched are the tests that look for leaks at their end. None is parallel.
var watched = map[*testing.T]bool{}

// newWorld makes a job with an ephemeral port on loopback. When the test ends, no goroutine of this package
// may run.
func newWorld(t *testing.T, size int) *world {
	t.Helper()
	if !watched[t] { // the check of a second world would find the first
		watched[t] = true
		t.Cleanup(func() { testenv.NoLeaks(t) })
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	addr := l.Addr().String()
	w := &world{t: t, addr: addr}
	w.root = w.config(0, size)
	w.root.Listener = l
	return w
}

func (w *world) config(rank, size int) Config {
	// The timeout never expires. Tests that need a timeout set a shorter one.
	return Config{
		Job:      settings.Job{Rank: rank, Size: size, Addr: w.addr, Version: "v1"},
		Meeting:  settings.Meeting{Store: w.store, Attempt: w.attempt, Protocol: 7},
		Liveness: settings.Liveness{JoinTimeout: time.Minute},
		Local:    loopback,
		tree:     w.shape,
		grace:    time.Minute,
	}
}

// configs returns the configurations of all ranks.
func (w *world) configs() []Config {
	cfgs := []Config{w.root}
	for rank := 1; rank < w.root.Size; rank++ {
		cfgs = append(cfgs, w.config(rank, w.root.Size))
	}
	return cfgs
}

type joined struct {
	*Session
	err error
}

// join runs Join for all configurations concurrently.
func (w *world) join(cfgs ...Config) []joined {
	out := make([]joined, len(cfgs))
	var wg sync.WaitGroup
	for i, cfg := range cfgs {
		wg.Go(func() { out[i].Session, out[i].err = Join(w.t.Context(), cfg) })
	}
	wg.Wait()
	for _, j := range out {
		if j.Session != nil {
			w.t.Cleanup(func() { _ = j.Close() })
		}
	}
	return out
}

// all joins all ranks, and expects that this works.
func (w *world) all() []joined {
	w.t.Helper()
	out := w.join(w.configs()...)
	for i, j := range out {
		if j.err != nil {
			w.t.Fatalf("rank %d: %v", i, j.err)
		}
	}
	return out
}

// exchange runs Exchange on all sessions concurrently and returns the errors.
func exchange(ctx context.Context, js []joined) []error {
	errs := make([]error, len(js))
	var wg sync.WaitGroup
	for i, j := range js {
		wg.Go(func() { _, errs[i] = j.Exchange(ctx, []byte{byte(i)}) })
	}
	wg.Wait()
	return errs
}

// blames reports whether err is of a kind and blames exactly these ranks.
func blames(err, kind error, ranks ...int) bool {
	var e *Error
	return errors.As(err, &e) && errors.Is(err, kind) && slices.Equal(e.Ranks, ranks)
}

func testKey(b byte) []byte { return bytes.Repeat([]byte{b}, 16) }
