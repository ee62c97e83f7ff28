package ip

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
)

func TestWakeOnce(t *testing.T) {
	mcastEach(t, func(t *testing.T, v mcastVariant) {
		t.Helper()
		m := v.open(t, mcastLoopback(t, 1, v.v6))
		r := m.Receiver(0)
		sink := newMcastSink(m.Capabilities().Chunk, 1)
		for range 100 {
			r.Wake()
			r.Wake()
			if err := r.Receive(sink); err != nil {
				t.Fatal(err)
			}
		}
		if sink.idle != 100 {
			t.Errorf("idle %d times", sink.idle)
		}
		// Two Wakes were one, and nothing is left of it: the next Receive waits.
		done := make(chan error, 1)
		go func() { done <- r.Receive(sink) }()
		select {
		case err := <-done:
			t.Fatalf("Receive returned: %v", err)
		default:
		}
		r.Wake()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// No Wake is lost, whatever it meets: a task that was there before the Wake is seen
// after a Receive. And no Receive returns without a reason.
func TestWakeHammer(t *testing.T) {
	mcastEach(t, func(t *testing.T, v mcastVariant) {
		t.Helper()
		a, b := mcastPair(t, v)
		r := b.Receiver(0)
		chunk := a.Capabilities().Chunk
		data := mcastData(chunk, 1)
		const wakers, tasks, datagrams = 4, 300, 200
		var posted atomic.Int64
		var wakes sync.WaitGroup
		for range wakers {
			wakes.Go(func() {
				for range tasks {
					posted.Add(1)
					r.Wake()
				}
			})
		}
		wakes.Go(func() { mcastSend(t, a.Sender(0), data, chunk, 1, make([]uint32, datagrams)...) })
		sink := newMcastSink(chunk, 1)
		returns := 0
		for posted.Load() < wakers*tasks || sink.copied < datagrams {
			if err := r.Receive(sink); err != nil {
				t.Fatal(err)
			}
			returns++
		}
		wakes.Wait()
		if most := wakers*tasks + datagrams + 1; returns > most || sink.idle != returns {
			t.Errorf("Receive returned %d times, at most %d had a reason; idle %d times", returns, most, sink.idle)
		}
	})
}

func TestCloseUnblocks(t *testing.T) {
	mcastEach(t, func(t *testing.T, v mcastVariant) {
		t.Helper()
		m := v.open(t, mcastLoopback(t, 3, v.v6))
		var waiting sync.WaitGroup
		for sub := range m.Subgroups() {
			waiting.Go(func() {
				r := m.Receiver(sub)
				if err := r.Receive(newMcastSink(1, 1)); err != fabric.ErrClosed {
					t.Errorf("Receive: %v", err)
				}
				if err := r.Receive(newMcastSink(1, 1)); err != fabric.ErrClosed {
					t.Errorf("next Receive: %v", err)
				}
				r.Wake()
				_ = r.Stats()
			})
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		waiting.Wait()
		b := &fabric.Batch{Headers: make([]fabric.Header, 1), Payloads: make([][]byte, 1)}
		if _, err := m.Sender(0).Send(b); err != fabric.ErrClosed {
			t.Errorf("Send: %v", err)
		}
	})
}

func TestPending(t *testing.T) {
	mcastEach(t, func(t *testing.T, v mcastVariant) {
		t.Helper()
		a, b := mcastPair(t, v)
		r := b.Receiver(0)
		if r.Pending() {
			t.Error("something is there before anything was sent")
		}
		chunk := a.Capabilities().Chunk
		mcastSend(t, a.Sender(0), mcastData(chunk, 1), chunk, 1, 0)
		for !r.Pending() {
			runtime.Gosched()
		}
		mcastUntil(t, r, newMcastSink(chunk, 1), 1)
		if r.Pending() {
			t.Error("something is there after all was received")
		}
	})
}
