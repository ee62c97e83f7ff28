//go:build verbs

package verbs

import (
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/fabric"
)

// pipeQueue is a completion queue whose channel is a pipe.
func pipeQueue(t *testing.T, take func(uintptr) bool) *completionQueue {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(r.Close(), w.Close()) })
	c := &completionQueue{take: take}
	fd, err := unix.Dup(int(r.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	c.pollable, err = newPollable(fd, "pipe")
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		t.Fatal(err)
	}
	return c
}

// stop waits until no goroutine uses the channel, since the caller destroys the channel next.
func TestStopWaitsForTake(t *testing.T) {
	inside, leave := make(chan struct{}), make(chan struct{})
	var taking atomic.Bool
	c := pipeQueue(t, func(uintptr) bool {
		taking.Store(true)
		close(inside)
		<-leave
		taking.Store(false)
		return true
	})
	go c.waitFor(time.Hour)
	<-inside
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		c.stop()
		if taking.Load() {
			t.Error("stop returned while the channel was in use")
		}
	}()
	select {
	case <-stopped:
	case <-time.After(20 * time.Millisecond):
	}
	close(leave)
	<-stopped
}

// stop ends a blocked wait at once. Later waits do not reach the channel.
func TestStopEndsWait(t *testing.T) {
	var calls atomic.Int32
	inside := make(chan struct{}, 1)
	c := pipeQueue(t, func(uintptr) bool {
		calls.Add(1)
		inside <- struct{}{}
		return false
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.waitFor(time.Hour)
	}()
	<-inside
	c.stop()
	<-ended
	c.waitFor(time.Hour)
	if err := c.wait(); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("wait after stop: %v", err)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("the channel was polled %d times", n)
	}
}
