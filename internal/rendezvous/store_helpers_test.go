package rendezvous

import (
	"context"
	"net/netip"
	"sync"
	"testing"

	"github.com/allcast/allcast/internal/testenv"
	"github.com/allcast/allcast/store"
)

// memStore is a store in memory. The hooks may fail or delay a call.
type memStore struct {
	onSet, onGet func(ctx context.Context, key string) error

	mu      sync.Mutex
	values  map[string][]byte
	changed chan struct{} // closed and replaced by Set
	sets    map[string]int
	gets    map[string]int
}

func newMemStore() *memStore {
	return &memStore{
		values: map[string][]byte{}, changed: make(chan struct{}), sets: map[string]int{}, gets: map[string]int{},
	}
}

func (s *memStore) Set(ctx context.Context, key string, value []byte) error {
	s.mu.Lock()
	s.sets[key]++
	s.mu.Unlock()
	if s.onSet != nil {
		if err := s.onSet(ctx, key); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[key] = append([]byte(nil), value...)
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

func (s *memStore) Get(ctx context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	s.gets[key]++
	s.mu.Unlock()
	if s.onGet != nil {
		if err := s.onGet(ctx, key); err != nil {
			return nil, err
		}
	}
	for {
		s.mu.Lock()
		value, ok := s.values[key]
		changed := s.changed
		s.mu.Unlock()
		if ok {
			return append([]byte(nil), value...), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// calls returns how often ranks called Set and Get.
func (s *memStore) calls() (sets, gets int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.sets {
		sets += n
	}
	for _, n := range s.gets {
		gets += n
	}
	return sets, gets
}

// newStoreWorld makes a job whose ranks meet through a store, in a tree with the given fan-out.
func newStoreWorld(t *testing.T, size int, shape tree, s store.Store) *world {
	t.Helper()
	if !watched[t] {
		watched[t] = true
		t.Cleanup(func() { testenv.NoLeaks(t) })
	}
	w := &world{t: t, store: s, shape: shape}
	w.root = w.config(0, size)
	return w
}

var loopback = netip.MustParseAddr("127.0.0.1")

// shapes are trees of several levels for few ranks, and the real one.
var shapes = []tree{1, 2, 3, byEight}
