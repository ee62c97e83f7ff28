// Package queue carries values from any number of goroutines to one, in the order in which they were
// pushed and without locks. Producers push to a list, and the consumer takes the list as a whole.
package queue

import (
	"sync"
	"sync/atomic"
)

// An Item is one entry of a queue.
type Item[T any] struct {
	Next  *Item[T]
	Value T
}

// A Queue has any number of producers and one consumer.
type Queue[T any] struct {
	head     atomic.Pointer[Item[T]]
	sleeping atomic.Bool
	wake     chan struct{}
	items    sync.Pool // items to reuse, so that pushing does not allocate
}

// New returns an empty queue.
func New[T any]() *Queue[T] {
	return &Queue[T]{wake: make(chan struct{}, 1), items: sync.Pool{New: func() any { return new(Item[T]) }}}
}

// Item returns an item with a zero value, to be filled and pushed.
func (q *Queue[T]) Item() *Item[T] { return q.items.Get().(*Item[T]) }

// Free takes back an item that the consumer has handled, and returns the one after it.
func (q *Queue[T]) Free(t *Item[T]) (next *Item[T]) {
	next = t.Next
	*t = Item[T]{}
	q.items.Put(t)
	return next
}

// Push adds an item and wakes the consumer if it sleeps.
func (q *Queue[T]) Push(t *Item[T]) {
	q.Add(t)
	q.Rouse()
}

// Add adds an item and wakes nobody.
func (q *Queue[T]) Add(t *Item[T]) {
	for {
		h := q.head.Load()
		t.Next = h
		if q.head.CompareAndSwap(h, t) {
			return
		}
	}
}

// Rouse wakes the consumer if it sleeps.
func (q *Queue[T]) Rouse() {
	if q.sleeping.Load() && q.sleeping.CompareAndSwap(true, false) {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

// Empty reports whether there is nothing to take.
func (q *Queue[T]) Empty() bool { return q.head.Load() == nil }

// Take returns all items, oldest first, linked by Next; nil if there are none.
func (q *Queue[T]) Take() *Item[T] {
	if q.head.Load() == nil {
		return nil
	}
	var first *Item[T]
	for t := q.head.Swap(nil); t != nil; {
		next := t.Next
		t.Next = first
		first, t = t, next
	}
	return first
}

// Sleep announces that the consumer is about to wait for Wake; false: there are items to take instead.
func (q *Queue[T]) Sleep() bool {
	q.sleeping.Store(true)
	if q.head.Load() != nil {
		q.Awake()
		return false
	}
	return true
}

// Awake withdraws the announcement of Sleep.
func (q *Queue[T]) Awake() { q.sleeping.Store(false) }

// Wake receives a value when a producer wakes the sleeping consumer.
func (q *Queue[T]) Wake() <-chan struct{} { return q.wake }
