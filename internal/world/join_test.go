package world

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/rendezvous"
)

// Everybody who came learns who did not: also when it is the time for joining that
// ran out, and not only at rank 0.
func TestWhoDidNotCome(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for r := range 4 {
		wg.Go(func() {
			cfg := Config{Rank: r, Size: 5, Addr: l.Addr().String(), JoinTimeout: 300 * time.Millisecond}
			if r == 0 {
				cfg.Listener = l
			}
			_, err := Join(context.Background(), cfg)
			var missing *rendezvous.MissingError
			if !errors.As(err, &missing) || len(missing.Missing) != 1 || missing.Missing[0] != 4 {
				t.Errorf("rank %d: got %v, want that rank 4 is missing", r, err)
			}
		})
	}
	wg.Wait()
}

// What Join was given is closed when it fails, whatever the reason.
func TestListenerOfBadConfig(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Join(context.Background(), Config{
		Rank: 0, Size: 2, Addr: l.Addr().String(), Listener: l, Subgroups: 2,
		Groups: []netip.AddrPort{netip.MustParseAddrPort("239.1.2.3:4567")},
	})
	if err == nil {
		t.Fatal("two subgroups in one group")
	}
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener was open")
	}
}

// A fabric that some rank does not have, or that others do not use, is an error that all
// get.
func TestFabrics(t *testing.T) {
	if HasVerbs {
		t.Skip("this program was built with verbs: make test-verbs")
	}
	for _, fabrics := range [][2]string{{IP, Verbs}, {Verbs, Verbs}} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for r := range 2 {
			wg.Go(func() {
				cfg := Config{Rank: r, Size: 2, Addr: l.Addr().String(), JoinTimeout: 10 * time.Second, Fabric: fabrics[r]}
				if r == 0 {
					cfg.Listener = l
				}
				if _, err := Join(context.Background(), cfg); err == nil || !strings.Contains(err.Error(), "go build -tags verbs") {
					t.Errorf("fabrics %v, rank %d: %v", fabrics, r, err)
				}
			})
		}
		wg.Wait()
	}
}
