//go:build linux && cgo

package main

import "sync"

// Handles are numbers that C programs hold. The top byte is the kind, so that a handle of another kind is invalid.
const (
	optionsKind = 1 + iota
	commKind
	requestKind
	queueKind
)

const kindShift = 56

// A table maps handles to objects. It never uses a handle twice.
type table[T any] struct {
	kind uint64

	mu      sync.RWMutex
	last    uint64 // number of the newest handle
	objects map[uint64]T
}

func newTable[T any](kind uint64) *table[T] { return &table[T]{kind: kind, objects: map[uint64]T{}} }

func (t *table[T]) add(object T) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	h := t.kind<<kindShift | t.last
	t.objects[h] = object
	return h
}

func (t *table[T]) get(handle uint64) (T, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	object, ok := t.objects[handle]
	return object, ok
}

// remove returns the object whose handle it removes.
func (t *table[T]) remove(handle uint64) (T, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	object, ok := t.objects[handle]
	delete(t.objects, handle)
	return object, ok
}

// removeIf removes all handles whose object matches.
func (t *table[T]) removeIf(match func(T) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for h, object := range t.objects {
		if match(object) {
			delete(t.objects, h)
		}
	}
}

// all returns the objects.
func (t *table[T]) all() []T {
	t.mu.RLock()
	defer t.mu.RUnlock()
	list := make([]T, 0, len(t.objects))
	for _, object := range t.objects {
		list = append(list, object)
	}
	return list
}

// used reports whether the table has returned the handle at some time.
func (t *table[T]) used(handle uint64) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return handle>>kindShift == t.kind && handle<<8>>8 != 0 && handle<<8>>8 <= t.last
}
