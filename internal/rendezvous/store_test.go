package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestTree(t *testing.T) {
	for _, c := range []struct {
		shape     tree
		rank, top int
		parent    int
		within    bool
	}{
		{star, 5, 0, 0, true},
		{star, 5, 4, 0, false},
		{star, 5, 5, 0, true},
		{2, 1, 0, 0, true},
		{2, 2, 1, 0, false},
		{2, 6, 2, 2, true},
		{2, 14, 2, 6, true},
		{2, 14, 5, 6, false},
		{8, 8, 0, 0, true},
		{8, 9, 1, 1, true},
		{8, 64, 7, 7, true},
		{8, 65, 8, 8, true},
		{8, 73, 1, 9, true},
	} {
		if p := c.shape.parent(c.rank); p != c.parent {
			t.Errorf("fan-out %d: parent of %d is %d, want %d", c.shape, c.rank, p, c.parent)
		}
		if in := c.shape.within(c.rank, c.top); in != c.within {
			t.Errorf("fan-out %d: %d within %d: %v", c.shape, c.rank, c.top, in)
		}
	}
}

func TestStoreJoin(t *testing.T) {
	for _, shape := range shapes {
		for _, size := range []int{1, 2, 3, 9, 65} {
			for _, mode := range []string{"open", "keyed", "secure"} {
				if size == 65 && shape == 1 {
					continue // nobody has that many levels
				}
				t.Run(fmt.Sprintf("fan-out %d, %d ranks, %s", shape, size, mode), func(t *testing.T) {
					s := newMemStore()
					w := newStoreWorld(t, size, shape, s)
					cfgs := w.configs()
					for i := range cfgs {
						cfgs[i].Secure = mode == "secure"
						if mode != "open" {
							cfgs[i].Key = testKey(1)
						}
					}
					js := w.join(cfgs...)
					for i, j := range js {
						if j.err != nil {
							t.Fatalf("rank %d: %v", i, j.err)
						}
						if j.Seed() != js[0].Seed() || j.LocalAddr() != loopback {
							t.Errorf("rank %d: seed %x, address %v", i, j.Seed(), j.LocalAddr())
						}
					}
					for round := range 3 {
						exchangeAndCheck(t, js, round)
					}
					sets, gets := s.calls()
					if want := size; size > 1 && (sets != want || gets != want-1) {
						t.Errorf("%d sets and %d gets by %d ranks", sets, gets, size)
					}
				})
			}
		}
	}
}

// Rank 0 sends every blob once per child, whatever the number of ranks, and a little to each rank.
func TestBytesAreLinear(t *testing.T) {
	const blob, perRank = 1000, 250
	for _, size := range []int{9, 33, 129} {
		for _, w := range []*world{newStoreWorld(t, size, byEight, newMemStore()), newWorld(t, size)} {
			js := w.all()
			var wg sync.WaitGroup
			for _, j := range js {
				wg.Go(func() {
					if _, err := j.Exchange(t.Context(), make([]byte, blob)); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if got, limit := js[0].Traffic().Sent, uint64(byEight)*uint64(size*(blob+4))+uint64(perRank*size); got > limit {
				t.Errorf("%d ranks, store: %v: rank 0 sent %d bytes, want at most %d", size, w.store != nil, got, limit)
			}
			for _, j := range js {
				wg.Go(func() { _ = j.Close() })
			}
			wg.Wait()
		}
	}
}

// Ranks in two jobs and on two stores do not meet, and a store serves one attempt after the other.
func TestManyJobs(t *testing.T) {
	stores := []*memStore{newMemStore(), newMemStore()}
	var wg sync.WaitGroup
	for _, s := range stores {
		for attempt := range 4 {
			w := newStoreWorld(t, 7, 2, s)
			w.attempt = attempt
			w.root.Attempt = attempt
			wg.Go(func() {
				js := w.join(w.configs()...)
				for i, err := range exchange(t.Context(), js) {
					if err != nil {
						t.Errorf("attempt %d, rank %d: %v", attempt, i, err)
					}
				}
			})
		}
	}
	wg.Wait()
}

// The same attempt can run again: entries of dead processes are in the store, and another job may have their
// ports.
func TestStoreUsedAgain(t *testing.T) {
	s := newMemStore()
	for range 3 {
		w := newStoreWorld(t, 7, 2, s)
		js := w.all()
		for i, err := range exchange(t.Context(), js) {
			if err != nil {
				t.Errorf("rank %d: %v", i, err)
			}
		}
		for _, j := range js {
			crash(j)
			_ = j.Close()
		}
	}
}

// Entries that lead nowhere, to strangers, to silence or to a rank of another job are stale.
func TestStaleEntries(t *testing.T) {
	other := newMemStore()
	ow := newStoreWorld(t, 2, 2, other)
	otherCtx, stopOther := context.WithCancel(t.Context())
	otherDone := make(chan struct{})
	go func() { // rank 0 of a job with another key, which waits for its rank 1
		defer close(otherDone)
		ow.root.Key = testKey(9)
		_, _ = Join(otherCtx, ow.root)
	}()
	foreign, err := other.Get(t.Context(), storeKey(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	fe, err := decodeEntry(foreign)
	if err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	encode := func(addr net.Addr) []byte {
		b, err := newEntry(addr.(*net.TCPAddr).AddrPort()).encode()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, stale := range map[string][]byte{
		"refused": encode(closed.Addr()), "silent": encode(silent.Addr()), "garbage": []byte("{"),
		"other job": encode(net.TCPAddrFromAddrPort(fe.addr)),
	} {
		t.Run(name, func(t *testing.T) {
			watched[t] = true // the other job runs
			s := newMemStore()
			for rank := range 7 {
				s.values[storeKey(0, rank)] = stale
			}
			// Parents start only after their children have read the stale entry.
			read := map[string]chan struct{}{}
			once := map[string]*sync.Once{}
			for rank := range 3 {
				read[storeKey(0, rank)], once[storeKey(0, rank)] = make(chan struct{}), &sync.Once{}
			}
			s.onGet = func(_ context.Context, key string) error {
				once[key].Do(func() { close(read[key]) })
				return nil
			}
			s.onSet = func(ctx context.Context, key string) error {
				if read[key] == nil {
					return nil
				}
				select {
				case <-read[key]:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			w := newStoreWorld(t, 7, 2, s)
			for i, err := range exchange(t.Context(), w.all()) {
				if err != nil {
					t.Errorf("rank %d: %v", i, err)
				}
			}
		})
	}
	stopOther()
	<-otherDone
}

// A store that fails now and then delays a job; one that always fails ends it soon.
func TestFaultyStore(t *testing.T) {
	broken := errors.New("the store is on fire")
	t.Run("now and then", func(t *testing.T) {
		s := newMemStore()
		var n atomic.Int64
		flaky := func(context.Context, string) error {
			if n.Add(1)%2 == 1 {
				return broken
			}
			return nil
		}
		s.onSet, s.onGet = flaky, flaky
		w := newStoreWorld(t, 9, 2, s)
		for i, err := range exchange(t.Context(), w.all()) {
			if err != nil {
				t.Errorf("rank %d: %v", i, err)
			}
		}
	})
	fail := func(context.Context, string) error { return broken }
	t.Run("set", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newMemStore()
			s.onSet = fail
			w := &world{t: t, store: s, shape: 2, attempt: 3}
			_, err := Join(t.Context(), w.config(1, 2))
			if !errors.Is(err, broken) || !strings.Contains(err.Error(), `cannot set "allcast/3/rank/1"`) {
				t.Error(err)
			}
		})
	})
	t.Run("get", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { // a whole Join would wait for the network, which stops the clock
			s := newMemStore()
			s.onGet = fail
			w := &world{t: t, store: s, shape: 2, attempt: 3}
			cfg := w.config(1, 2)
			if f := <-seek(t.Context(), &cfg, 0, nil).found; !errors.Is(f.err, broken) ||
				!strings.Contains(f.err.Error(), `cannot get "allcast/3/rank/0"`) {
				t.Error(f.err)
			}
		})
	})
}

// A slow store does not outlast the join timeout.
func TestHangingStore(t *testing.T) {
	hang := func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for _, onSet := range []bool{true, false} {
		s := newMemStore()
		if onSet {
			s.onSet = hang
		} else {
			s.onGet = hang
		}
		w := newStoreWorld(t, 2, 2, s)
		cfg := w.config(1, 2)
		cfg.JoinTimeout = 20 * time.Millisecond
		if _, err := Join(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "in the store") {
			t.Error(err)
		}
	}
}
