package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/allcast/allcast/internal/testenv"
	"github.com/allcast/allcast/store"
)

const token = "s3cret"

func TestMain(m *testing.M) {
	// Idle connections of http.DefaultClient belong to no test.
	testenv.Main(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// stores calls f with every kind of store, twice on the same values.
func stores(t *testing.T, f func(t *testing.T, a, b store.Store)) {
	t.Helper()
	t.Run("dir", func(t *testing.T) {
		path := t.TempDir() + "/new/dir"
		f(t, store.Dir(path), store.Dir(path))
	})
	t.Run("http", func(t *testing.T) {
		mux := http.NewServeMux()
		mux.Handle("/jobs/", store.NewServer(token))
		srv := httptest.NewServer(mux)
		defer srv.Close()
		f(t, store.HTTP(srv.URL+"/jobs", token), store.HTTP(srv.URL+"/jobs/", token))
	})
	t.Run("memory", func(t *testing.T) {
		s := store.NewServer("")
		f(t, s, s)
	})
	t.Run("prefix", func(t *testing.T) {
		s := store.NewServer("")
		f(t, store.Prefix(s, "a/"), store.Prefix(s, "a/"))
	})
}

func TestValues(t *testing.T) {
	stores(t, func(t *testing.T, a, b store.Store) {
		t.Helper()
		for _, key := range []string{
			"allcast/0/rank/1", "..", "../../x", "a b%2F+", "Ä\x00\n", "x.value", strings.Repeat("k", 80),
		} {
			for _, value := range [][]byte{{}, []byte("one"), {0, 255}, bytes.Repeat([]byte("v"), store.MaxValue)} {
				if err := a.Set(t.Context(), key, value); err != nil {
					t.Fatalf("%q: %v", key, err)
				}
				got, err := b.Get(t.Context(), key)
				if err != nil || !bytes.Equal(got, value) {
					t.Errorf("%q: got %d bytes, want %d: %v", key, len(got), len(value), err)
				}
			}
		}
	})
}

// Get waits for a value that comes later, on all clients at once.
func TestWait(t *testing.T) {
	stores(t, func(t *testing.T, a, b store.Store) {
		t.Helper()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				key := fmt.Sprint("key", i%4)
				if got, err := b.Get(t.Context(), key); err != nil || string(got) != key {
					t.Errorf("%q, %v", got, err)
				}
			})
		}
		for i := range 4 {
			key := fmt.Sprint("key", i)
			if err := a.Set(t.Context(), key, []byte(key)); err != nil {
				t.Error(err)
			}
		}
		wg.Wait()
	})
}

func TestCancel(t *testing.T) {
	stores(t, func(t *testing.T, a, _ store.Store) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() {
			_, err := a.Get(ctx, "never")
			got <- err
		}()
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// A reader sees one whole value or another, never a mixture.
func TestAtomic(t *testing.T) {
	stores(t, func(t *testing.T, a, b store.Store) {
		t.Helper()
		value := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 10_000) }
		if err := a.Set(t.Context(), "k", value(0)); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range 50 {
				if err := a.Set(t.Context(), "k", value(i)); err != nil {
					t.Error(err)
				}
			}
		})
		for range 50 {
			got, err := b.Get(t.Context(), "k")
			if err != nil || len(got) != 10_000 || bytes.Count(got, got[:1]) != len(got) {
				t.Errorf("a mixture of %d bytes, %v", len(got), err)
			}
		}
		wg.Wait()
	})
}

func TestPrefixesDoNotMeet(t *testing.T) {
	s := store.NewServer("")
	a, b := store.Prefix(s, "a/"), store.Prefix(s, "b/")
	for _, p := range []store.Store{a, b} {
		if err := p.Set(t.Context(), "k", fmt.Appendf(nil, "%p", &p)); err != nil {
			t.Fatal(err)
		}
	}
	x, _ := a.Get(t.Context(), "k")
	y, _ := b.Get(t.Context(), "k")
	if bytes.Equal(x, y) {
		t.Error("two prefixes share a value")
	}
}

func TestToken(t *testing.T) {
	srv := httptest.NewServer(store.NewServer(token))
	defer srv.Close()
	for _, wrong := range []string{"", "s3cre", "s3crets"} {
		c := store.HTTP(srv.URL, wrong)
		_, get := c.Get(t.Context(), "k")
		for _, err := range []error{c.Set(t.Context(), "k", nil), get} {
			if err == nil || !strings.Contains(err.Error(), "401") || strings.Contains(err.Error(), token) {
				t.Errorf("token %q: %v", wrong, err)
			}
		}
	}
}

func TestServerLimits(t *testing.T) {
	s := store.NewServer("")
	srv := httptest.NewServer(s)
	defer srv.Close()
	c := store.HTTP(srv.URL, "")
	long := make([]byte, store.MaxValue+1)
	if err := c.Set(t.Context(), "k", long); err == nil || !strings.Contains(err.Error(), "413") {
		t.Error(err)
	}
	full := 0
	for i := range 2000 {
		if s.Set(t.Context(), fmt.Sprint(i), long[1:]) != nil {
			full++
		}
	}
	if full == 0 {
		t.Error("a server takes 125 MiB")
	}
	if err := s.Set(t.Context(), "0", nil); err != nil {
		t.Error("a full server refuses a smaller value:", err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, srv.URL+"/aw", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Error(resp.Status)
	}
}

func TestDirErrors(t *testing.T) {
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d := store.Dir(file)
	if err := d.Set(t.Context(), "k", nil); err == nil {
		t.Error("a file is not a directory")
	}
	if _, err := d.Get(t.Context(), "k"); err == nil {
		t.Error("a file is not a directory")
	}
}
