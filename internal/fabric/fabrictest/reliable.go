package fabrictest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	for _, c := range []struct {
		name string
		test func(*testing.T, Network)
	}{
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
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, n) })
	}
}

func testReliableCapabilities(t *testing.T, n Network) {
	t.Helper()
	w := n.open(t, 2)
	r := w.Ranks[0]
	if (r.Reader == nil) == (r.Direct == nil) {
		t.Error("want exactly one of Reader and Direct")
	}
	if r.Allocator == nil {
		return
	}
	b, err := r.Allocator.Alloc(100_000)
	if err != nil || len(b) != 100_000 {
		t.Fatalf("Alloc returned %d bytes: %v", len(b), err)
	}
	copy(b, fill(len(b), 1))
	p := fabric.Piece{Nth: 1, Len: int64(len(b))}
	r.Put(1, p, b)
	w.recs[1].waitPiece(t, 0, p, fill(len(b), 1))
	w.recs[0].waitDone(t, 1, p)
	if err := r.Allocator.Free(b); err != nil {
		t.Error(err)
	}
	if r.Allocator.Free(b) == nil || r.Allocator.Free(make([]byte, 10)) == nil {
		t.Error("Free took memory that is not allocated")
	}
}

// Messages and pieces of all sizes arrive in order, in all directions at once, and every put is done
// exactly once.
func testOrder(t *testing.T, n Network) {
	t.Helper()
	const ranks, rounds = 3, 60
	sizes := []int{0, 1, 1000, 16 << 10, 16<<10 + 1, 256<<10 - 1, 256 << 10, 256<<10 + 1, 700_017}
	w := n.open(t, ranks)
	piece := func(i int) fabric.Piece {
		return fabric.Piece{Op: fabric.OpKey{Comm: 7, Seq: uint64(i)}, Nth: uint32(i), Len: int64(sizes[i/4%len(sizes)])}
	}
	var want []string
	data := map[int][]byte{}
	for i := range rounds {
		if i%3 == 0 {
			want = append(want, fmt.Sprintf("more %d", i))
		}
		want = append(want, fmt.Sprintf("message %d", i))
		if i%4 == 0 {
			want = append(want, fmt.Sprintf("piece %d", i))
			data[i] = fill(int(piece(i).Len), byte(i))
		}
	}
	var wg sync.WaitGroup
	for r, me := range w.Ranks {
		wg.Go(func() {
			for i := range rounds {
				for to := range ranks {
					if to == r {
						continue
					}
					if i%3 == 0 {
						me.SendMore(to, fmt.Appendf(nil, "more %d", i))
					}
					msg := fmt.Appendf(nil, "message %d", i)
					me.Send(to, msg)
					clear(msg) // Send has copied it
					if i%4 == 0 {
						me.Put(to, piece(i), data[i])
					}
				}
			}
		})
	}
	wg.Wait()
	for r, rec := range w.recs {
		for from := range ranks {
			if from == r {
				continue
			}
			rec.wait(t, "everything of a peer", func() bool { return len(rec.order[from]) == len(want) })
			for i := range data {
				rec.waitPiece(t, from, piece(i), data[i])
				rec.waitDone(t, from, piece(i))
			}
			rec.mu.Lock()
			if !slices.Equal(rec.order[from], want) {
				t.Errorf("rank %d got from rank %d:\n%v\nwant\n%v", r, from, rec.order[from], want)
			}
			rec.mu.Unlock()
		}
	}
	s, o := w.Ranks[0].Stats().Peers[1], w.Ranks[1].Stats().Peers[0]
	var total uint64
	for _, d := range data {
		total += uint64(len(d))
	}
	if s.Sent < total || s.Received < total || o.Sent < total || o.Received < total {
		t.Errorf("rank 0 counts %+v with rank 1, which counts %+v, and sent at least %d", s, o, total)
	}
}

// Reads return the bytes of all their spans. Reads outside of a registered buffer are refused, and
// the connection survives them.
func testReads(t *testing.T, n Network) {
	t.Helper()
	w := n.open(t, 2)
	op := fabric.OpKey{Comm: 3, Seq: 9}
	buf := fill(600_100, 5)
	size := int64(len(buf))
	w.register(t, 1, op, buf)
	many := make([]fabric.Span, fabric.MaxSpans)
	for i := range many {
		many[i] = fabric.Span{Off: int64(1000 * i), Len: int64(i % 500)}
	}
	for i, c := range []struct {
		spans []fabric.Span
		ok    bool
	}{
		{[]fabric.Span{{Off: 0, Len: size}}, true},
		{[]fabric.Span{{Off: 17, Len: 1}}, true},
		{[]fabric.Span{{Off: 256 << 10, Len: 256<<10 + 1}}, true},
		{[]fabric.Span{{Off: 9, Len: 1}, {Off: 100, Len: 3}, {Off: size - 1, Len: 1}, {Off: 200, Len: 300_000}, {
			Off: 5,
			Len: 0,
		}}, true},
		{many, true},
		{[]fabric.Span{{Off: size, Len: 0}}, true},
		{[]fabric.Span{{Off: 0, Len: size + 1}}, false},
		{[]fabric.Span{{Off: size, Len: 1}}, false},
		{[]fabric.Span{{Off: 0, Len: 1}, {Off: size, Len: 1}}, false},
	} {
		var want []byte
		for _, s := range c.spans {
			if c.ok {
				want = append(want, buf[s.Off:s.Off+s.Len]...)
			}
		}
		req := fabric.ReadRequest{ReadID: fabric.ReadID{Op: op, ID: uint64(i)}, Spans: slices.Clone(c.spans)}
		got, ok := w.read(t, 0, 1, req, len(buf)+1)
		if ok != c.ok || ok && !bytes.Equal(got, want) {
			t.Errorf("read %d: %d bytes, want %d; ok %v, want %v", i, len(got), len(want), ok, c.ok)
		}
	}
	other := fabric.ReadRequest{ReadID: fabric.ReadID{Op: fabric.OpKey{Seq: 77}}, Spans: []fabric.Span{{Len: 1}}}
	if _, ok := w.read(t, 0, 1, other, 1); ok {
		t.Error("a buffer that was never registered was read")
	}
	w.echo(t, 0, 1)
	w.Ranks[1].Unregister(op)
}

// A peer may have MaxReads reads of each operation under way.
func testManyReads(t *testing.T, n Network) {
	t.Helper()
	const ops = 20
	w := n.open(t, 2)
	far := fill(ops*fabric.MaxReads, 1)
	near := make([]byte, len(far))
	rec := w.recs[0]
	for seq := range uint64(ops) {
		op := fabric.OpKey{Seq: seq}
		w.register(t, 1, op, far)
		if w.Ranks[0].Direct != nil {
			w.register(t, 0, op, near)
		}
	}
	for id := range uint64(len(far)) {
		req := fabric.ReadRequest{
			ReadID: fabric.ReadID{Op: fabric.OpKey{Seq: id / fabric.MaxReads}, ID: id}, Spans: []fabric.Span{{
				Off: int64(id),
				Len: 1,
			}},
		}
		if d := w.Ranks[0].Direct; d != nil {
			d.ReadInto(1, req, near)
		} else {
			w.Ranks[0].Reader.Read(1, req)
		}
	}
	rec.wait(t, "all reads", func() bool { return len(rec.reads)+len(rec.ended) == len(far) })
	rec.mu.Lock()
	for id, b := range rec.reads {
		near[id.ID] = b[0]
	}
	rec.mu.Unlock()
	if !bytes.Equal(near, far) {
		t.Error("reads returned other bytes")
	}
	for seq := range uint64(ops) {
		for r := range w.Ranks {
			w.Ranks[r].Unregister(fabric.OpKey{Seq: seq})
		}
	}
}

// After Unregister no read of the buffer succeeds. Under the race detector, this also shows accesses
// to the buffer.
func testUnregister(t *testing.T, n Network) {
	t.Helper()
	w := n.open(t, 2)
	buf := fill(300_000, 1)
	for seq := range uint64(8) {
		op := fabric.OpKey{Seq: seq}
		w.register(t, 0, op, buf)
		req := fabric.ReadRequest{ReadID: fabric.ReadID{Op: op, ID: 1}, Spans: []fabric.Span{{Len: 300_000}}}
		if got, ok := w.read(t, 1, 0, req, len(buf)); !ok || !bytes.Equal(got, buf) {
			t.Errorf("operation %d: read %d bytes, ok %v", seq, len(got), ok)
		}
		w.Ranks[0].Unregister(op)
		for i := range buf {
			buf[i]++
		}
		req = fabric.ReadRequest{ReadID: fabric.ReadID{Op: op, ID: 2}, Spans: []fabric.Span{{Len: 300_000}}}
		if _, ok := w.read(t, 1, 0, req, len(buf)); ok {
			t.Errorf("operation %d: an unregistered buffer was read", seq)
		}
	}
}

// stuckSize is more than sockets, slots and parts hold while the handler keeps its buffers.
const stuckSize = 128 * 256 << 10

// A cancelled put ends although the peer takes nothing, exactly once. Other operations go on.
func testCancel(t *testing.T, n Network) {
	t.Helper()
	w := n.open(t, 2)
	w.recs[0].hold = true
	gone, stays := fabric.OpKey{Seq: 1}, fabric.OpKey{Seq: 2}
	data := make([]byte, stuckSize)
	first := fabric.Piece{Op: gone, Nth: 1, Len: int64(len(data))}
	other := fabric.Piece{Op: stays, Nth: 2, Len: 100_000}
	second := fabric.Piece{Op: gone, Nth: 3, Len: int64(len(data))}
	w.Ranks[1].Put(0, first, data)
	w.recs[0].wait(t, "a part", func() bool { return len(w.recs[0].held) > 0 })
	w.Ranks[1].Put(0, other, fill(100_000, 2))
	w.Ranks[1].Put(0, second, data)
	w.Ranks[1].Cancel(gone)
	w.recs[1].waitDone(t, 0, first)
	w.recs[1].waitDone(t, 0, second)
	for i := range data {
		data[i] = 1 // a race if the network still reads it
	}
	w.recs[0].release()
	w.recs[0].waitPiece(t, 1, other, fill(100_000, 2))
	w.recs[1].waitDone(t, 0, other)
	w.Ranks[1].Cancel(stays) // nothing is left to cancel
	w.echo(t, 1, 0)
	w.recs[0].mu.Lock()
	defer w.recs[0].mu.Unlock()
	if _, begun := w.recs[0].pieces[1][second]; begun {
		t.Error("a cancelled put that had not begun has begun")
	}
}

// A handler that keeps buffers stops their peer, and no other peer.
func testBackpressure(t *testing.T, n Network) {
	t.Helper()
	w := n.open(t, 3)
	w.recs[0].hold = true
	data := fill(stuckSize, 9)
	p := fabric.Piece{Len: int64(len(data))}
	w.Ranks[1].Put(0, p, data)
	w.recs[0].wait(t, "a part", func() bool { return len(w.recs[0].held) > 0 })
	w.echo(t, 2, 0)
	w.recs[0].mu.Lock()
	if len(w.recs[0].pieces[1][p]) == len(data) {
		t.Error("the network holds more than its bound for a handler that keeps its buffers")
	}
	w.recs[0].mu.Unlock()
	w.recs[0].release()
	w.recs[0].waitPiece(t, 1, p, data)
	w.recs[1].waitDone(t, 0, p)
}

// The last message before Drop arrives, and then a goodbye. The dropped peer is not lost, and nothing
// more goes to it or comes from it.
func testDrop(t *testing.T, n Network) {
	t.Helper()
	for name, talk := range map[string][]int{"none": nil, "ours": {0}, "theirs": {1}, "both": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			w := n.open(t, 2)
			for _, r := range talk {
				w.Ranks[r].Send(1-r, []byte("hello"))
				w.recs[1-r].waitMessage(t, r, "hello")
			}
			w.Ranks[0].Send(1, []byte("verdict"))
			w.Ranks[0].Drop(1)
			w.Ranks[0].Send(1, []byte("too late"))
			late := fabric.Piece{Nth: 1, Len: 1}
			w.Ranks[0].Put(1, late, []byte("x"))
			w.recs[0].waitDone(t, 1, late)
			if err := w.recs[1].waitLost(t, 0); !errors.Is(err, fabric.ErrGoodbye) {
				t.Errorf("the dropped rank lost its peer with %v", err)
			}
			w.close(t)
			w.recs[1].mu.Lock()
			defer w.recs[1].mu.Unlock()
			if m := w.recs[1].order[0]; m[len(m)-1] != "verdict" {
				t.Errorf("the dropped rank got %v", m)
			}
			if len(w.recs[0].lost) > 0 {
				t.Errorf("the dropping rank lost %v", w.recs[0].lost)
			}
		})
	}
}

// Everything that is queued arrives although the sender closes at once, and then the goodbye. The
// closing rank hears nothing more, and a second Close does nothing.
func testGoodbye(t *testing.T, n Network) {
	t.Helper()
	w := n.open(t, 3)
	data := fill(5*256<<10, 3)
	p := fabric.Piece{Nth: 1, Len: int64(len(data))}
	w.Ranks[2].Send(0, []byte("hello")) // rank 0 never sends to rank 2
	w.recs[0].waitMessage(t, 2, "hello")
	w.Ranks[0].Send(1, []byte("first"))
	w.Ranks[0].Put(1, p, data)
	w.Ranks[0].Send(1, []byte("last"))
	w.closeRank(t, 0)
	w.recs[0].waitDone(t, 1, p)
	for _, r := range []int{1, 2} {
		if err := w.recs[r].waitLost(t, 0); !errors.Is(err, fabric.ErrGoodbye) {
			t.Errorf("rank %d lost its peer with %v", r, err)
		}
	}
	w.recs[1].waitPiece(t, 0, p, data)
	w.recs[1].mu.Lock()
	if want := []string{"first", "piece 1", "last"}; !slices.Equal(w.recs[1].order[0], want) {
		t.Errorf("rank 1 got %v, want %v", w.recs[1].order[0], want)
	}
	w.recs[1].mu.Unlock()
	w.closeRank(t, 0)
	if len(w.recs[0].lost) > 0 {
		t.Errorf("the closing rank lost %v", w.recs[0].lost)
	}
	w.echo(t, 1, 2)
}

// The crash of a peer is reported once, without a goodbye. All puts to it are done exactly once.
func testCrash(t *testing.T, n Network) {
	t.Helper()
	w := n.open(t, 3)
	w.echo(t, 0, 1)
	w.echo(t, 0, 2)
	w.Kill(1)
	data := make([]byte, 1<<20)
	var puts []fabric.Piece
	for i := range uint32(3) {
		puts = append(puts, fabric.Piece{Nth: i, Len: int64(len(data))})
		w.Ranks[0].Put(1, puts[i], data)
	}
	if err := w.recs[0].waitLost(t, 1); errors.Is(err, fabric.ErrGoodbye) {
		t.Errorf("the crashed rank said goodbye: %v", err)
	}
	late := fabric.Piece{Nth: 9, Len: 5}
	w.Ranks[0].Put(1, late, []byte("later"))
	for _, p := range append(puts, late) {
		w.recs[0].waitDone(t, 1, p)
	}
	if d := w.Ranks[0].Direct; d != nil {
		buf := make([]byte, 10)
		op := fabric.OpKey{Seq: 4}
		w.register(t, 0, op, buf)
		id := fabric.ReadID{Op: op, ID: 1}
		d.ReadInto(1, fabric.ReadRequest{ReadID: id, Spans: []fabric.Span{{Len: 10}}}, buf)
		w.recs[0].wait(t, "the end of a direct read", func() bool { return slices.Equal(w.recs[0].ended[id], []bool{false}) })
		w.Ranks[0].Unregister(op)
	}
	w.echo(t, 0, 2)
}

// Flush returns once all messages have left.
func testFlush(t *testing.T, n Network) {
	t.Helper()
	w := n.open(t, 2)
	w.Ranks[0].Flush(waitLimit) // nothing was sent
	for i := range 100 {
		w.Ranks[0].Send(1, fmt.Appendf(nil, "message %d", i))
	}
	begin := time.Now()
	w.Ranks[0].Flush(waitLimit)
	if time.Since(begin) >= waitLimit {
		t.Error("Flush waited until its limit")
	}
	w.recs[1].waitMessage(t, 0, "message 99")
}

// Ranks send, put, read, cancel, drop and close all at the same time: every put is done exactly once,
// and nothing hangs.
func testCloseWithTraffic(t *testing.T, n Network) {
	t.Helper()
	const ranks, worlds, steps = 4, 4, 30
	for seed := range uint64(worlds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			w := n.open(t, ranks)
			data := make([]byte, 500_000)
			var puts [ranks]int
			var wg sync.WaitGroup
			for r, me := range w.Ranks {
				op := fabric.OpKey{Seq: uint64(r)}
				w.register(t, r, op, data)
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(seed, uint64(r)))
					for i := range steps {
						to := (r + 1 + rng.IntN(ranks-1)) % ranks
						switch rng.IntN(8) {
						case 0, 1, 2:
							me.Send(to, make([]byte, rng.IntN(2000)))
						case 3, 4:
							k := rng.IntN(len(data))
							me.Put(to, fabric.Piece{Op: op, Nth: uint32(i), Len: int64(k)}, data[:k])
							puts[r]++
						case 5:
							if me.Reader != nil {
								me.Reader.Read(to, fabric.ReadRequest{
									ReadID: fabric.ReadID{Op: fabric.OpKey{Seq: uint64(to)}, ID: uint64(i)},
									Spans:  []fabric.Span{{Len: int64(rng.IntN(len(data)))}},
								})
							}
						case 6:
							me.Cancel(op)
						case 7:
							if rng.IntN(8) == 0 {
								me.Drop(to)
							}
						}
					}
					if r%2 == 0 {
						w.closeRank(t, r)
					}
				})
			}
			wg.Wait()
			w.close(t)
			for r, rec := range w.recs {
				done := 0
				for _, d := range rec.done {
					done += len(d)
				}
				if done != puts[r] {
					t.Errorf("rank %d: %d of %d puts are done", r, done, puts[r])
				}
			}
		})
	}
}
