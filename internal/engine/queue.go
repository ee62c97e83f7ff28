package engine

import "sync/atomic"

// queue carries tasks from any number of goroutines to one, in the order in which
// they were pushed, without locks: a list that producers push to and the consumer
// takes as a whole.
type queue struct {
	head     atomic.Pointer[task]
	sleeping atomic.Bool
	wake     chan struct{}
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

// push adds a task and wakes the consumer if it sleeps.
func (q *queue) push(t *task) {
	q.add(t)
	q.rouse()
}

// add adds a task.
func (q *queue) add(t *task) {
	for {
		h := q.head.Load()
		t.next = h
		if q.head.CompareAndSwap(h, t) {
			return
		}
	}
}

// rouse wakes the consumer if it sleeps.
func (q *queue) rouse() {
	if q.sleeping.Load() && q.sleeping.CompareAndSwap(true, false) {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

// empty reports whether there is nothing to take.
func (q *queue) empty() bool { return q.head.Load() == nil }

// take returns all tasks, oldest first, linked by next; nil if there are none.
func (q *queue) take() *task {
	if q.head.Load() == nil {
		return nil
	}
	var first *task
	for t := q.head.Swap(nil); t != nil; {
		next := t.next
		t.next = first
		first, t = t, next
	}
	return first
}

// sleep announces that the consumer is about to wait for q.wake. It reports false
// if there is something to do instead.
func (q *queue) sleep() bool {
	q.sleeping.Store(true)
	if q.head.Load() != nil {
		q.awake()
		return false
	}
	return true
}

// awake takes back what sleep announced.
func (q *queue) awake() { q.sleeping.Store(false) }
