package dpa

import "container/heap"

// event is the time at which a worker resumes. Each worker has one event at a time.
type event struct {
	at     int64
	worker int
}

// events is a heap.Interface, earliest first. Events of the same cycle are in the order
// of their workers, so that a run is reproducible.
type events []event

func (h events) Len() int      { return len(h) }
func (h events) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h events) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].worker < h[j].worker
}
func (h *events) Push(e any) { *h = append(*h, e.(event)) }
func (h *events) Pop() any {
	old := *h
	e := old[len(old)-1]
	*h = old[:len(old)-1]
	return e
}

func (h *events) push(e event) { heap.Push(h, e) }
func (h *events) pop() event   { return heap.Pop(h).(event) }
