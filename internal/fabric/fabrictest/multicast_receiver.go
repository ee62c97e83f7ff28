package fabrictest

import (
	"bytes"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

// Wake ends one Receive, and several Wakes before it are one.
func testWake(t *testing.T, n Network) {
	t.Helper()
	m := n.Multicast(t, 1)[0]
	rx := m.Receiver(0)
	s := newSink(m.Capabilities().Chunk, 1)
	for range 100 {
		rx.Wake()
		rx.Wake()
		if err := rx.Receive(s); err != nil {
			t.Fatal(err)
		}
	}
	if s.idle != 100 {
		t.Errorf("the sink was idle %d times, want 100", s.idle)
	}
	var returned atomic.Bool
	done := make(chan error, 1)
	go func() {
		err := rx.Receive(s)
		returned.Store(true)
		done <- err
	}()
	for range 1000 {
		runtime.Gosched()
	}
	if returned.Load() {
		t.Error("Receive returned without a reason")
	}
	rx.Wake()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// No Wake is lost among datagrams and other Wakes, and no Receive returns without a reason.
func testWakeWithTraffic(t *testing.T, n Network) {
	t.Helper()
	const wakers, tasks, datagrams = 4, 300, 100
	all := n.Multicast(t, 2)
	c := all[0].Capabilities()
	rx := all[1].Receiver(0)
	var posted atomic.Int64
	var wg sync.WaitGroup
	for range wakers {
		wg.Go(func() {
			for range tasks {
				posted.Add(1)
				rx.Wake()
			}
		})
	}
	wg.Go(func() { send(t, all[0].Sender(0), 1, fill(c.Chunk, 1), c.Chunk, 1, make([]uint32, datagrams)) })
	s := newSink(c.Chunk, 1)
	returns := 0
	receive(t, rx, s, func() bool {
		returns++
		return posted.Load() == wakers*tasks && s.got == datagrams
	})
	wg.Wait()
	if limit := wakers*tasks + datagrams + 2; returns > limit || s.idle != returns-1 {
		t.Errorf("Receive returned %d times, at most %d had a reason; idle %d times", returns-1, limit, s.idle)
	}
}

func testPending(t *testing.T, n Network) {
	t.Helper()
	all := n.Multicast(t, 2)
	c := all[0].Capabilities()
	rx := all[1].Receiver(0)
	s := newSink(c.Chunk, 1)
	rx.Wake()
	if err := rx.Receive(s); err != nil {
		t.Fatal(err)
	}
	if rx.Pending() {
		t.Error("datagrams are pending before one was sent")
	}
	send(t, all[0].Sender(0), 1, fill(c.Chunk, 1), c.Chunk, 1, []uint32{0})
	for begin := time.Now(); !rx.Pending(); runtime.Gosched() {
		if time.Since(begin) > waitLimit {
			t.Fatal("no datagram is pending")
		}
	}
	receive(t, rx, s, func() bool { return s.got == 1 })
	blocked := make(chan error, 1)
	go func() { blocked <- rx.Receive(s) }()
	for begin := time.Now(); rx.Pending(); runtime.Gosched() {
		if time.Since(begin) > waitLimit {
			t.Fatal("datagrams are pending after all were received")
		}
	}
	rx.Wake()
	if err := <-blocked; err != nil {
		t.Fatal(err)
	}
}

// An attached receiver hands its datagrams to the sink when the leader polls. Without a poller,
// Attach does nothing.
func testPoller(t *testing.T, n Network) {
	t.Helper()
	all := n.Multicast(t, 2)
	c := all[1].Capabilities()
	rx := all[1].Receiver(0)
	s := newSink(c.Chunk, 8)
	if c.Poller == nil {
		if rx.Attach(nil, s, nil) {
			t.Error("a receiver was attached without a poller")
		}
		return
	}
	for !c.Poller.Lead() { // the background leads for a moment
		runtime.Gosched()
	}
	if !rx.Attach(c.Poller, s, func(err error) { t.Error(err) }) {
		t.Fatal("the receiver was not attached")
	}
	data := fill(8*c.Chunk, 1)
	send(t, all[0].Sender(0), 1, data, c.Chunk, c.Batch, psns(8))
	kick := time.AfterFunc(waitLimit, c.Poller.Kick)
	defer kick.Stop()
	for begin := time.Now(); s.got < 8; c.Poller.Poll(waitLimit) {
		if time.Since(begin) > waitLimit {
			t.Fatalf("%d chunks arrived", s.got)
		}
	}
	if !bytes.Equal(s.buf, data) {
		t.Error("other bytes arrived")
	}
	idle := s.idle
	rx.Wake()
	c.Poller.Poll(waitLimit)
	if s.idle == idle {
		t.Error("Wake did not make the poller call the sink")
	}
	c.Poller.Kick()
	c.Poller.Poll(-1) // returns because of Kick
	c.Poller.Yield()
}

// Close ends all Receive calls, and Send afterwards.
func testMulticastClose(t *testing.T, n Network) {
	t.Helper()
	m := n.Multicast(t, 1)[0]
	var wg sync.WaitGroup
	for stream := range m.Streams() {
		wg.Go(func() {
			rx := m.Receiver(stream)
			for range 2 {
				if err := rx.Receive(newSink(1, 1)); !errors.Is(err, fabric.ErrClosed) {
					t.Errorf("Receive: %v", err)
				}
			}
			rx.Wake()
			_ = rx.Stats()
		})
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	tx := m.Sender(0)
	b := &fabric.Batch{Headers: make([]wire.Header, 1), Payloads: make([][]byte, 1)}
	if _, err := tx.Send(b); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("Send: %v", err)
	}
	tx.Await(time.Millisecond)
	if err := m.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}
