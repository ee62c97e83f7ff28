package fabrictest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
)

// world is the reliable side of some ranks, with their recorders.
type world struct {
	*World
	recs []*recorder
}

// open opens ranks. When the test ends, all are closed at the same time, and checked.
func (n Network) open(t *testing.T, ranks int) *world {
	t.Helper()
	w := &world{}
	handlers := make([]fabric.Handler, ranks)
	for i := range handlers {
		w.recs = append(w.recs, newRecorder())
		handlers[i] = w.recs[i]
	}
	w.World = n.Reliable(t, handlers)
	t.Cleanup(func() { w.close(t) })
	return w
}

func (w *world) close(t *testing.T) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range w.Ranks {
		wg.Go(func() { w.closeRank(t, i) })
	}
	wg.Wait()
	for _, r := range w.recs {
		r.release()
		r.check(t)
	}
}

func (w *world) closeRank(t *testing.T, rank int) {
	t.Helper()
	if err := w.Ranks[rank].Close(); err != nil {
		t.Errorf("rank %d: %v", rank, err)
	}
	w.recs[rank].mu.Lock()
	defer w.recs[rank].mu.Unlock()
	w.recs[rank].closed = true
}

// register registers a buffer, and waits until peers can read it.
func (w *world) register(t *testing.T, rank int, op fabric.OpKey, buf []byte) {
	t.Helper()
	r := w.recs[rank]
	r.mu.Lock()
	delete(r.ready, op)
	r.mu.Unlock()
	if w.Ranks[rank].Register(op, buf) {
		return
	}
	r.wait(t, "a registration", func() bool { _, ok := r.ready[op]; return ok })
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.ready[op]; err != nil {
		t.Fatal(err)
	}
}

// read reads spans of another rank's buffer, and returns their bytes. A refused read of a Reader has
// no answer; read then returns only if a later message of the peer has arrived.
func (w *world) read(t *testing.T, rank, from int, req fabric.ReadRequest, size int) (got []byte, ok bool) {
	t.Helper()
	r, me := w.recs[rank], w.Ranks[rank]
	var want int
	for _, s := range req.Spans {
		want += int(s.Len)
	}
	spans := slices.Clone(req.Spans)
	if me.Direct == nil {
		me.Reader.Read(from, req)
		clear(req.Spans) // Read has copied them
		// Frames come in order: once the echo of a later message is here, so is the answer.
		w.echo(t, rank, from)
		r.mu.Lock()
		defer r.mu.Unlock()
		got, ok = r.reads[req.ReadID]
		return got, ok && len(got) == want
	}
	buf := make([]byte, size)
	w.register(t, rank, req.Op, buf)
	defer me.Unregister(req.Op)
	me.Direct.ReadInto(from, req, buf)
	clear(req.Spans)
	r.wait(t, "the end of a direct read", func() bool { return len(r.ended[req.ReadID]) > 0 })
	r.mu.Lock()
	ok = r.ended[req.ReadID][0]
	r.mu.Unlock()
	for _, s := range spans {
		got = append(got, buf[s.Off:s.Off+s.Len]...)
		clear(buf[s.Off : s.Off+s.Len])
	}
	if ok && slices.ContainsFunc(buf, func(b byte) bool { return b != 0 }) {
		t.Errorf("read %+v wrote outside of its spans", req.ReadID)
	}
	return got, ok
}

// echo waits for the answer to a Read that was made last: the peer sends a message after it.
func (w *world) echo(t *testing.T, rank, peer int) {
	t.Helper()
	msg := fmt.Sprintf("ping %d", pings.Add(1))
	w.Ranks[rank].Send(peer, []byte(msg))
	w.recs[peer].waitMessage(t, rank, msg)
	w.Ranks[peer].Send(rank, []byte(msg))
	w.recs[rank].waitMessage(t, peer, msg)
}

var pings atomic.Uint64

// TestReliable runs the tests of the reliable side.
func TestReliable(t *testing.T, n Network) {
	t.Helper()
	n.run(t, []test{
		{"capabilities", testReliableCapabilities},
		{"order", testOrder},
		{"reads", testReads},
		{"many reads", testManyReads},
		{"unregister", testUnregister},
		{"cancel", testCancel},
		{"backpressure", testBackpressure},
		{"drop", testDrop},
		{"goodbye", testGoodbye},
		{"crash", testCrash},
		{"flush", testFlush},
		{"close with traffic", testCloseWithTraffic},
	})
}
