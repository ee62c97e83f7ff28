package fabrictest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/fabric"
)

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
