package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/settings"
)

func TestJoin(t *testing.T) {
	for _, size := range []int{1, 2, 8, 64} {
		for _, key := range [][]byte{nil, testKey(1)} {
			t.Run(fmt.Sprintf("%d ranks, key %v", size, key != nil), func(t *testing.T) {
				w := newWorld(t, size)
				cfgs := w.configs()
				for i := range cfgs {
					cfgs[i].Key = key
				}
				js := w.join(cfgs...)
				for i, j := range js {
					if j.err != nil {
						t.Fatalf("rank %d: %v", i, j.err)
					}
					if j.Seed() != js[0].Seed() || j.Seed() == [32]byte{} {
						t.Errorf("rank %d: seed %x, rank 0's is %x", i, j.Seed(), js[0].Seed())
					}
					if !j.LocalAddr().IsLoopback() {
						t.Errorf("rank %d: local address %v", i, j.LocalAddr())
					}
				}
				for round := range 3 {
					exchangeAndCheck(t, js, round)
				}
			})
		}
	}
}

func exchangeAndCheck(t *testing.T, js []joined, round int) {
	t.Helper()
	blob := func(rank int) []byte {
		n := []int{0, 1, 100, MaxBlob}[(rank+round)%4]
		if len(js) > 8 {
			n = min(n, 1000) // every rank gets all of them
		}
		return bytes.Repeat([]byte{byte(rank + round + 1)}, n)
	}
	var wg sync.WaitGroup
	for i, j := range js {
		wg.Go(func() {
			got, err := j.Exchange(t.Context(), blob(i))
			if err != nil || len(got) != len(js) {
				t.Errorf("rank %d: %d blobs, %v", i, len(got), err)
				return
			}
			for rank := range got {
				if !bytes.Equal(got[rank], blob(rank)) {
					t.Errorf("rank %d: blob of rank %d has %d bytes, or wrong ones", i, rank, len(got[rank]))
				}
				clear(got[rank]) // the caller owns the result
			}
		})
	}
	wg.Wait()
}

func TestSeedIsFresh(t *testing.T) {
	a, b := newWorld(t, 2).all(), newWorld(t, 2).all()
	if a[0].Seed() == b[0].Seed() {
		t.Error("two jobs with one seed")
	}
}

// Ranks may come long before rank 0 listens.
func TestRankZeroComesLast(t *testing.T) {
	w := newWorld(t, 3)
	_ = w.root.Listener.Close()
	w.root.Listener = nil
	var wg sync.WaitGroup
	errs := make([]error, 3)
	for rank := 1; rank < 3; rank++ {
		wg.Go(func() {
			s, err := Join(t.Context(), w.config(rank, 3))
			if errs[rank] = err; err == nil {
				_ = s.Close()
			}
		})
	}
	// One attempt that fails, as those of the ranks may.
	if conn, err := net.Dial("tcp", w.addr); err == nil {
		_ = conn.Close()
	}
	s, err := Join(t.Context(), w.root)
	if err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	_ = s.Close()
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

func TestMissing(t *testing.T) {
	w := newWorld(t, 8)
	expired := make(chan time.Time, 1)
	came := 0
	w.root.expired = expired
	w.root.seen = func(int) {
		if came++; came == 5 {
			expired <- time.Time{}
		}
	}
	cfgs := slices.DeleteFunc(w.configs(), func(c Config) bool { return c.Rank == 3 || c.Rank == 5 })
	for i, j := range w.join(cfgs...) {
		if !blames(j.err, ErrTimeout, 3, 5) || errors.Is(j.err, ErrKey) ||
			!strings.Contains(j.err.Error(), "6 of 8 ranks came; missing: 3, 5") {
			t.Errorf("rank %d: %v", cfgs[i].Rank, j.err)
		}
	}
}

// A rank that came is not missing, even if its own timeout expires first.
func TestMissingByARanksTimeout(t *testing.T) {
	w := newWorld(t, 4)
	impatient := w.config(2, 4)
	expired := make(chan time.Time, 1)
	impatient.expired = expired
	w.root.seen = func(int) { expired <- time.Time{} }
	cfgs := []Config{w.root, impatient}
	for i, j := range w.join(cfgs...) {
		if !blames(j.err, ErrTimeout, 1, 3) || !strings.Contains(j.err.Error(), "rank 2 gave up waiting") {
			t.Errorf("rank %d: %v", cfgs[i].Rank, j.err)
		}
	}
}

// A verdict counts that came at the moment at which the rank's own timeout expired.
func TestVerdictBeforeTimeout(t *testing.T) {
	ours, parents := net.Pipe()
	l := newLeaf(&Config{Job: settings.Job{Rank: 1, Size: 3}}, 0, ours, false)
	missing := verdict{kind: ErrTimeout, ranks: []int{2}, size: 3}
	if _, err := parents.Write(missing.frame()); err != nil {
		t.Fatal(err)
	}
	<-l.dead // and the connection is closed
	if v := l.sentence(t.Context(), time.Minute); v == nil || !blames(v.err(), ErrTimeout, 2) {
		t.Errorf("got %v, want that rank 2 is missing", v)
	}
}

func TestConflicts(t *testing.T) {
	for _, c := range []struct {
		name  string
		is    error
		want  string
		ranks []int
		set   func(*Config) // of an additional process that calls itself rank 2
	}{
		{
			"protocol", ErrVersion, "speaks protocol 8 (version v1), rank 0 speaks protocol 7 (version v1)",
			[]int{0, 2},
			func(c *Config) { c.Protocol = 8 },
		},
		{"program", ErrProgram, `runs "b", rank 0 runs "a"`, []int{0, 2}, func(c *Config) { c.Program = "b" }},
		{"size", ErrSize, "says 5 ranks, rank 0 says 4", []int{0, 2}, func(c *Config) { c.Size = 5 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 4)
			w.root.Program = "a"
			odd := w.config(2, 4)
			c.set(&odd)
			cfgs := []Config{w.root, w.config(1, 4), odd, w.config(3, 4)}
			for i, j := range w.join(cfgs...) {
				if !blames(j.err, c.is, c.ranks...) || !strings.Contains(j.err.Error(), c.want) ||
					!strings.Contains(j.err.Error(), "127.0.0.1:") {
					t.Errorf("process %d: %v", i, j.err)
				}
			}
		})
	}
}

// A rank that comes after the conflict gets the same verdict.
func TestDuplicate(t *testing.T) {
	w := newWorld(t, 4)
	twice := make(chan struct{})
	ones := 0
	w.root.seen = func(rank int) {
		if rank == 1 {
			if ones++; ones == 2 {
				close(twice)
			}
		}
	}
	last := make(chan error, 1)
	go func() {
		<-twice
		_, err := Join(t.Context(), w.config(2, 4))
		last <- err
	}()
	js := w.join(w.root, w.config(1, 4), w.config(1, 4), w.config(3, 4))
	for i, j := range append(js, joined{nil, <-last}) {
		if !blames(j.err, ErrDuplicate, 1) ||
			!strings.Contains(j.err.Error(), "both say they are rank 1") || strings.Count(j.err.Error(), "127.0.0.1:") != 2 {
			t.Errorf("process %d: %v", i, j.err)
		}
	}
}

func TestUnreachable(t *testing.T) {
	w := newWorld(t, 2)
	_ = w.root.Listener.Close()
	cfg := w.config(1, 2)
	cfg.JoinTimeout = 50 * time.Millisecond
	_, err := Join(t.Context(), cfg)
	if !errors.Is(err, ErrTimeout) || !blames(err, ErrLost, 0) ||
		!strings.Contains(err.Error(), w.addr) || !strings.Contains(err.Error(), "tried since") {
		t.Error(err)
	}
}

func TestAddressInUse(t *testing.T) {
	w := newWorld(t, 2)
	cfg := w.config(0, 2)
	cfg.JoinTimeout = 50 * time.Millisecond
	_, err := Join(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), w.addr) || !strings.Contains(err.Error(), "MASTER_PORT") {
		t.Error(err)
	}
}

func TestCancelJoin(t *testing.T) {
	t.Run("root", func(t *testing.T) {
		w := newWorld(t, 3)
		ctx, cancel := context.WithCancel(t.Context())
		w.root.seen = func(int) { cancel() }
		rank := make(chan error, 1)
		go func() {
			_, err := Join(t.Context(), w.config(1, 3))
			rank <- err
		}()
		_, err := Join(ctx, w.root)
		if !errors.Is(err, context.Canceled) {
			t.Error("root:", err)
		}
		if err := <-rank; !blames(err, ErrLost, 0) || !strings.Contains(err.Error(), "cancelled") {
			t.Error("rank:", err)
		}
	})
	// A rank that was cancelled can be started again.
	t.Run("rank", func(t *testing.T) {
		w := newWorld(t, 2)
		gone, leave := context.WithCancel(t.Context())
		first := true
		w.root.Size = 3
		w.root.seen = func(int) {
			if first {
				first = false
				leave()
			}
		}
		root := make(chan joined, 1)
		go func() {
			s, err := Join(t.Context(), w.root)
			root <- joined{s, err}
		}()
		if _, err := Join(gone, w.config(1, 3)); !errors.Is(err, context.Canceled) {
			t.Error("rank:", err)
		}
		js := w.join(w.config(1, 3), w.config(2, 3))
		js = append([]joined{<-root}, js...)
		for i, j := range js {
			if j.err != nil {
				t.Fatalf("rank %d: %v", i, j.err)
			}
		}
		for i, err := range exchange(t.Context(), js) {
			if err != nil {
				t.Errorf("rank %d: %v", i, err)
			}
		}
		_ = js[0].Close()
	})
	t.Run("seeking", func(t *testing.T) {
		w := newWorld(t, 2)
		_ = w.root.Listener.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		if _, err := Join(ctx, w.config(1, 2)); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// Ranks of different versions meet if they speak the same protocol. A rank of a version before protocol numbers does
// not, and the error names its version.
func TestVersions(t *testing.T) {
	w := newWorld(t, 2)
	odd := w.config(1, 2)
	odd.Version = "v2"
	for i, j := range w.join(w.root, odd) {
		if j.err != nil {
			t.Errorf("process %d: %v", i, j.err)
		}
	}
	w = newWorld(t, 2)
	odd = w.config(1, 2)
	odd.Version, odd.Protocol = "0.9.0", 0
	const want = "speaks protocol 0 (version 0.9.0), rank 0 speaks protocol 7 (version v1)"
	for i, j := range w.join(w.root, odd) {
		if !blames(j.err, ErrVersion, 0, 1) || !strings.Contains(j.err.Error(), want) {
			t.Errorf("process %d: %v", i, j.err)
		}
	}
}
