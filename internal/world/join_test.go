package world

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/joinhook"
	"github.com/allcast/allcast/internal/offload/bpf"
	"github.com/allcast/allcast/internal/rendezvous"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/testenv"
)

// join joins as one rank of a job whose rank 0 listens at l.
func join(ctx context.Context, t *testing.T, l net.Listener, rank, size int, change func(*settings.Settings)) error {
	t.Helper()
	s := settings.Settings{Job: settings.Job{Rank: rank, Size: size, Addr: l.Addr().String()}}
	s, err := settings.Resolve(s, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Error(err)
		return nil
	}
	change(&s)
	_, err = Join(joinhook.With(ctx, joinhook.Hooks{Listener: l}), s)
	return err
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Every rank that came learns which ranks did not, also when its own time for joining ends. A busy machine may need
// longer to start the other ranks, so the test gives them more time if more of them were missing.
func TestMissingRank(t *testing.T) {
	t.Parallel() // it waits for the timeout
	for limit := time.Second; ; limit *= 2 {
		errs := missOne(t, limit)
		late := false
		for r, err := range errs {
			var missing *rendezvous.Error
			if !errors.Is(err, rendezvous.ErrTimeout) || !errors.As(err, &missing) {
				t.Fatalf("rank %d: got %v, want that rank 4 is missing", r, err)
			}
			late = late || !slices.Equal(missing.Ranks, []int{4})
		}
		if !late {
			return
		}
		if t.Log(limit, errs); limit > testenv.Patience {
			t.Fatal("want that only rank 4 is missing")
		}
	}
}

// missOne starts all ranks of a job but the last one, and returns their errors.
func missOne(t *testing.T, limit time.Duration) (errs [4]error) {
	t.Helper()
	l := listen(t)
	var wg sync.WaitGroup
	for r := range errs {
		wg.Go(func() {
			errs[r] = join(t.Context(), t, l, r, len(errs)+1, func(s *settings.Settings) { s.JoinTimeout = limit })
		})
	}
	wg.Wait()
	return errs
}

// Join closes the listener also when it fails before it uses it.
func TestJoinClosesListener(t *testing.T) {
	l := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := join(ctx, t, l, 0, 2, func(*settings.Settings) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is open: %v", err)
	}
}

// All ranks fail if one lacks the fabric, or if they use different ones.
func TestFabrics(t *testing.T) {
	if settings.HasVerbs {
		t.Skip("this program was built with verbs: make test-verbs")
	}
	for _, fabrics := range [][2]string{{settings.IP, settings.Verbs}, {settings.Verbs, settings.Verbs}} {
		l := listen(t)
		var wg sync.WaitGroup
		for r := range 2 {
			wg.Go(func() {
				// Resolve would refuse the fabric.
				err := join(t.Context(), t, l, r, 2, func(s *settings.Settings) { s.Fabric = fabrics[r] })
				if err == nil || !strings.Contains(err.Error(), "go build -tags verbs") {
					t.Errorf("fabrics %v, rank %d: %v", fabrics, r, err)
				}
			})
		}
		wg.Wait()
	}
}

// Package settings checks hooks by name, because it lies below package bpf.
func TestHooks(t *testing.T) {
	if len(bpf.Hooks) != len(settings.Hooks) {
		t.Fatalf("%v and %v", bpf.Hooks, settings.Hooks)
	}
	for i, h := range bpf.Hooks {
		if string(h) != settings.Hooks[i] {
			t.Errorf("%v and %v", bpf.Hooks, settings.Hooks)
		}
	}
}
