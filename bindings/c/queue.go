//go:build linux && cgo

package main

// #include "internal.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast"
)

// completion is an operation that has ended.
type completion struct {
	request, user uint64
	code          C.int
}

// queue collects completions. Operations add to it on the goroutine that ends them, so adding never blocks.
type queue struct {
	mu       sync.Mutex
	list     []completion
	expected int           // operations that have not ended
	fd       int           // event descriptor, -1 until the program asks for it
	freed    bool          // no operation may start
	ready    chan struct{} // holds a token if list is not empty and no waiting thread has been woken
	over     chan struct{} // closed when freed
}

var queues = newTable[*queue](queueKind)

// queueOf returns the queue of a handle.
func queueOf(handle C.allcast_queue) (*queue, error) {
	if q, ok := queues.get(uint64(handle)); ok {
		return q, nil
	}
	return nil, invalid("%#x is no handle of a queue, or was freed", uint64(handle))
}

func errQueueFreed() error { return fmt.Errorf("allcast: the queue was freed: %w", allcast.ErrClosed) }

// expect announces an operation.
func (q *queue) expect() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.freed {
		return errQueueFreed()
	}
	q.expected++
	return nil
}

// forget takes back an announcement.
func (q *queue) forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.expected--
}

// push adds the completion of an operation that was announced.
func (q *queue) push(c completion) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.expected--
	q.list = append(q.list, c)
	if len(q.list) == 1 {
		q.raise()
	}
	q.wake()
}

// wake wakes a thread that waits. The caller holds mu.
func (q *queue) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// raise makes the descriptor readable. The caller holds mu. The counter is 0, so that writing cannot fail.
func (q *queue) raise() {
	if q.fd >= 0 {
		var one [8]byte
		binary.NativeEndian.PutUint64(one[:], 1)
		_, _ = unix.Write(q.fd, one[:])
	}
}

// take removes up to limit completions.
func (q *queue) take(to []C.allcast_completion) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(to), len(q.list))
	if n == 0 {
		return 0
	}
	for i, c := range q.list[:n] {
		if _, ok := requests.get(c.request); !ok {
			c.request = 0
		}
		to[i] = C.allcast_completion{
			request: C.allcast_request(c.request), user: C.uint64_t(c.user), error: c.code,
		}
	}
	q.list = q.list[:copy(q.list, q.list[n:])]
	switch {
	case len(q.list) > 0:
		q.wake() // another thread may take the rest
	case q.fd >= 0:
		var count [8]byte
		_, _ = unix.Read(q.fd, count[:])
	}
	return n
}

// next takes completions, and waits for the first for at most timeout milliseconds, or forever if that is negative.
func (q *queue) next(to []C.allcast_completion, timeout C.int64_t) (int, error) {
	var passed <-chan time.Time
	for {
		select {
		case <-q.over:
			return 0, errQueueFreed()
		default:
		}
		if n := q.take(to); n > 0 {
			return n, nil
		}
		if timeout == 0 {
			return 0, fmt.Errorf("allcast: %w: the queue is empty", errTimeout)
		}
		if timeout > 0 && passed == nil {
			t := time.NewTimer(milliseconds(timeout))
			defer t.Stop()
			passed = t.C
		}
		select {
		case <-q.ready:
		case <-q.over:
		case <-passed:
			timeout = 0
		}
	}
}

//export goQueueNew
func goQueueNew(f *C.struct_failure, handle *C.allcast_queue) C.int {
	if err := checkOut("queue", handle); err != nil {
		return report(f, err)
	}
	q := &queue{fd: -1, ready: make(chan struct{}, 1), over: make(chan struct{})}
	*handle = C.allcast_queue(queues.add(q))
	return C.ALLCAST_OK
}

//export goQueueFD
func goQueueFD(f *C.struct_failure, handle C.allcast_queue, fd *C.int) C.int {
	q, err := queueOf(handle)
	if err == nil {
		err = checkOut("fd", fd)
	}
	if err != nil {
		return report(f, err)
	}
	n, err := q.descriptor()
	if err == nil {
		*fd = C.int(n)
	}
	return report(f, err)
}

// descriptor returns the event descriptor, which it makes on the first call.
func (q *queue) descriptor() (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.freed {
		return 0, errQueueFreed()
	}
	if q.fd < 0 {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return 0, fmt.Errorf("allcast: event descriptor of a queue: %w", err)
		}
		q.fd = fd
		if len(q.list) > 0 {
			q.raise()
		}
	}
	return q.fd, nil
}

//export goQueueNext
func goQueueNext(
	f *C.struct_failure, handle C.allcast_queue, to *C.allcast_completion, limit C.size_t, timeout C.int64_t,
	n *C.size_t,
) C.int {
	q, err := queueOf(handle)
	if err == nil {
		err = checkOut("n", n)
	}
	var list []C.allcast_completion
	if err == nil {
		list, err = array("list", to, limit)
	}
	if err == nil && len(list) == 0 {
		err = invalid("max is 0: want room for at least one completion")
	}
	if err != nil {
		return report(f, err)
	}
	*n = 0
	got, err := q.next(list, timeout)
	*n = C.size_t(got)
	return report(f, err)
}

//export goQueueFree
func goQueueFree(f *C.struct_failure, handle C.allcast_queue) C.int {
	q, err := queueOf(handle)
	if err == nil {
		err = q.free()
	}
	if err == nil {
		queues.remove(uint64(handle))
	}
	return report(f, err)
}

func (q *queue) free() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.freed:
		return errQueueFreed()
	case q.expected > 0:
		return fmt.Errorf("allcast: free a queue: %w: %d operations have not ended", errQueueInUse, q.expected)
	}
	q.freed = true
	close(q.over)
	if q.fd >= 0 {
		_ = unix.Close(q.fd)
	}
	return nil
}
