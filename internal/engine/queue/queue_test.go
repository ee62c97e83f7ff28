package queue

import (
	"sync"
	"testing"
)

// Items of each producer arrive once and in order, and a sleeping consumer is woken. Freed items are
// empty.
func TestQueue(t *testing.T) {
	const producers, items = 4, 1000
	q := New[[2]int]()
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for i := range items {
				it := q.Item()
				if it.Next != nil || it.Value != [2]int{} {
					t.Error("an item was reused with its content")
				}
				it.Value = [2]int{p, i}
				q.Push(it)
			}
		})
	}
	next := make([]int, producers)
	for got := 0; got < producers*items; {
		if q.Sleep() {
			<-q.Wake()
		}
		for it := q.Take(); it != nil; it = q.Free(it) {
			if p, i := it.Value[0], it.Value[1]; next[p] != i {
				t.Fatalf("producer %d: item %d, want %d", p, i, next[p])
			}
			next[it.Value[0]]++
			got++
		}
	}
	wg.Wait()
	if !q.Empty() || q.Take() != nil {
		t.Error("items are left")
	}
}

// Add wakes nobody until Rouse, and a consumer that withdrew its announcement is not woken.
func TestRouse(t *testing.T) {
	q := New[int]()
	woken := func() bool {
		select {
		case <-q.Wake():
			return true
		default:
			return false
		}
	}
	if !q.Sleep() {
		t.Fatal("an empty queue has something to take")
	}
	if q.Add(&Item[int]{}); woken() {
		t.Error("Add woke the consumer")
	}
	if q.Rouse(); !woken() {
		t.Error("Rouse did not wake the consumer")
	}
	if q.Sleep() {
		t.Error("the consumer sleeps while an item waits")
	}
	if q.Rouse(); woken() {
		t.Error("a consumer that does not sleep was woken")
	}
}
