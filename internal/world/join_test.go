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

// Every rank that came learns which ranks did not, also when its own time for joining ends.
func TestMissingRank(t *testing.T) {
	t.Parallel() // it takes as long as the timeout, in which a busy machine must start all other ranks
	l := listen(t)
	var wg sync.WaitGroup
	for r := range 4 {
		wg.Go(func() {
			err := join(t.Context(), t, l, r, 5, func(s *settings.Settings) { s.JoinTimeout = 4 * time.Second })
			var missing *rendezvous.Error
			if !errors.Is(err, rendezvous.ErrTimeout) || !errors.As(err, &missing) || !slices.Equal(missing.Ranks, []int{4}) {
				t.Errorf("rank %d: got %v, want that rank 4 is missing", r, err)
			}
		})
	}
	wg.Wait()
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
