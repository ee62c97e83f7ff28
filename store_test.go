package allcast_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/calltest"
	"github.com/allcast/allcast/store"
)

// joinStore joins a job through a store and runs an Allgather, rank by rank in goroutines of this process.
func joinStore(ctx context.Context, t *testing.T, size int, o allcast.Options) {
	t.Helper()
	var wg sync.WaitGroup
	o.Size, o.Logger = size, slog.New(slog.DiscardHandler)
	for r := range size {
		wg.Go(func() {
			o := o
			o.Rank = r
			c, err := allcast.Join(ctx, o)
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
				return
			}
			const n = 50_000
			got := make([]byte, size*n)
			err = errors.Join(c.Allgather(ctx, calltest.Pattern(uint64(o.Attempt), r, n), got), c.Close())
			if err := calltest.Equal(err, got, calltest.Gathered(uint64(o.Attempt), size, n)); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	wg.Wait()
}

// Ranks meet through a store. A process is in several jobs at once, on one store and on several, and a store serves
// one attempt after the other.
func TestStore(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	handler := store.NewServer("token")
	srv := httptest.NewServer(handler)
	defer srv.Close()
	var jobs sync.WaitGroup
	for name, s := range map[string]store.Store{
		"dir": store.Dir(t.TempDir()), "http": store.HTTP(srv.URL, "token"),
		"prefix": store.Prefix(handler, "other/"), "memory": store.NewServer(""),
	} {
		jobs.Go(func() {
			for attempt := range 3 {
				o := allcast.Options{Store: s, Attempt: attempt, NoCalibration: true}
				if name != "dir" {
					o.Key = []byte("0123456789abcdef")
					if name == "http" {
						o.Secure, o.Datapath = true, "host" // the kernel cannot decrypt
					}
				}
				joinStore(ctx, t, 3, o)
			}
			joinStore(ctx, t, 3, allcast.Options{Store: s, Attempt: 2, NoCalibration: true}) // that attempt once more
		})
	}
	jobs.Wait()
}

func TestStoreOfOneRank(t *testing.T) {
	joinStore(t.Context(), t, 1, allcast.Options{Store: store.Dir(t.TempDir())})
}

// More ranks than rank 0 has children.
func TestStoreTree(t *testing.T) {
	joinStore(t.Context(), t, 12, allcast.Options{Store: store.NewServer(""), NoCalibration: true})
}

// A store replaces MASTER_ADDR, also with ranks of a launcher.
func TestStoreWithLauncher(t *testing.T) {
	t.Setenv("RANK", "0")
	t.Setenv("WORLD_SIZE", "1")
	c, err := allcast.Join(t.Context(), allcast.Options{Store: store.NewServer("")})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// The interface of the options also decides where ranks meet.
func TestStoreInterface(t *testing.T) {
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, ifi := range all {
		if ifi.Flags&net.FlagLoopback != 0 {
			joinStore(t.Context(), t, 3, allcast.Options{Store: store.NewServer(""), Interface: ifi.Name, NoCalibration: true})
		}
	}
	_, err = allcast.Join(t.Context(), allcast.Options{Size: 2, Store: store.NewServer(""), Interface: "none0"})
	if err == nil || !strings.Contains(err.Error(), "ALLCAST_IFNAME") {
		t.Error(err)
	}
}

// failingStore fails always.
type failingStore struct{ err error }

func (f failingStore) Set(context.Context, string, []byte) error   { return f.err }
func (f failingStore) Get(context.Context, string) ([]byte, error) { return nil, f.err }

func TestStoreErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("permission denied")
		_, err := allcast.Join(t.Context(), allcast.Options{Size: 2, Store: failingStore{broken}})
		if !errors.Is(err, broken) || !strings.Contains(fmt.Sprint(err), "allcast/0/rank/0") {
			t.Error(err)
		}
	})
	for _, o := range []allcast.Options{
		{Size: 2, Store: store.NewServer(""), Addr: "127.0.0.1:20000"},
		{Size: 2, Store: store.NewServer(""), Attempt: -1},
	} {
		if _, err := allcast.Join(t.Context(), o); !errors.Is(err, allcast.ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
