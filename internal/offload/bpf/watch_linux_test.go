package bpf

import (
	"testing"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/ip"
)

// The program wakes the process after the last chunk that the process has not claimed, after every few
// chunks, and on Wake. Chunks that the process places itself cause no additional wake-ups.
func TestWatch(t *testing.T) {
	poller, err := ip.NewPoller()
	must(t, err)
	t.Cleanup(func() { _ = poller.Close() })
	w := newLoopback(t, Config{Chunk: 10, Poller: poller}, 1, false)
	ready := make(chan struct{}, 1000)
	must(t, w.Watch(func() { ready <- struct{}{} }))
	w.Wake()
	<-ready
	l := specOf(0, 10, 100)
	a, p := w.open(t, w.alloc(t, 100), l)
	all := chunksOf(l, randomBytes(100))
	w.send(t, 0, all[:9]...)
	if len(ready) != 0 {
		t.Error("woken before the last chunk")
	}
	w.send(t, 0, all[9])
	<-ready
	runs(t, p, fabric.Run{PSN: 0, N: 10})
	p.Close()
	a.Release()

	l = specOf(0, 10, 100)
	a, p = w.open(t, w.alloc(t, 100), l)
	all = chunksOf(l, randomBytes(100))
	p.claim(5, 1)
	if !p.take(6) {
		t.Error("the process could not take a free chunk")
	}
	w.send(t, 0, all[:9]...)
	if len(ready) != 0 {
		t.Error("woken before the last chunk")
	}
	w.send(t, 0, all[9])
	<-ready
	p.Close()
	a.Release()

	// Count reports when the process has counted the last chunk.
	l = specOf(0, 10, 100)
	a, p = w.open(t, w.alloc(t, 100), l)
	w.send(t, 0, chunksOf(l, randomBytes(100))[:8]...)
	if p.Count(1) || !p.Count(1) {
		t.Error("Count did not report the last of two missing chunks, or reported it early")
	}
	p.Close()
	a.Release()

	// The program wakes the process after every chunks, before all have arrived.
	l = specOf(0, 1, every+1)
	a, p = w.open(t, w.alloc(t, every+1), l)
	w.send(t, 0, chunksOf(l, make([]byte, every+1))[:every]...)
	<-ready
	p.Close()
	a.Release()
	must(t, poller.Close())
}

func TestWatchWithoutPoller(t *testing.T) {
	if err := load(t, Config{Chunk: 10}).Watch(nil); err == nil {
		t.Error("Watch succeeded without a poller")
	}
}
