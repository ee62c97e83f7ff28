package fabrictest

import (
	"bytes"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
)

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
		{[]fabric.Span{
			{Off: 9, Len: 1}, {Off: 100, Len: 3}, {Off: size - 1, Len: 1}, {Off: 200, Len: 300_000}, {Off: 5},
		}, true},
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
			ReadID: fabric.ReadID{Op: fabric.OpKey{Seq: id / fabric.MaxReads}, ID: id},
			Spans:  []fabric.Span{{Off: int64(id), Len: 1}},
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
