package datapath

import "sync"

// A registry finds values that several goroutines share by their keys.
type registry[K comparable, V any] struct {
	mu   sync.RWMutex
	open map[K]V
}

func newRegistry[K comparable, V any]() registry[K, V] { return registry[K, V]{open: map[K]V{}} }

func (r *registry[K, V]) add(key K, v V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[key] = v
}

// find returns the zero value if there is none.
func (r *registry[K, V]) find(key K) V {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.open[key]
}

func (r *registry[K, V]) remove(key K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, key)
}
