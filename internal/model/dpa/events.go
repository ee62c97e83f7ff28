package dpa

import (
	"cmp"
	"slices"
)

// event is the time at which a worker resumes. Each worker has one event at a time.
type event struct {
	at     int64
	worker int
}

// events is a queue of at most MaxThreads events, the next one last. Events of the same cycle are in
// the order of their workers, so that a run is reproducible.
type events []event

func (q *events) push(e event) {
	at, _ := slices.BinarySearchFunc(*q, e, func(a, b event) int {
		return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(b.worker, a.worker))
	})
	*q = slices.Insert(*q, at, e)
}

func (q *events) pop() event {
	last := len(*q) - 1
	e := (*q)[last]
	*q = (*q)[:last]
	return e
}
