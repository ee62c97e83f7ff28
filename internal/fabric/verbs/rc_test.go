//go:build verbs

package verbs_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/verbs"
)

// events is a handler that records its calls.
type events struct {
	mu   sync.Mutex
	all  []string
	data map[uint32][]byte
	more chan struct{}
}

func newEvents() *events { return &events{data: map[uint32][]byte{}, more: make(chan struct{})} }

func (e *events) add(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, fmt.Sprintf(format, args...))
	close(e.more)
	e.more = make(chan struct{})
}

func (e *events) Message(from int, msg []byte) { e.add("message %d %d", from, len(msg)) }

func (e *events) Data(_ int, p fabric.Piece, off int64, b *fabric.Buffer) {
	e.mu.Lock()
	e.data[p.Nth] = append(e.data[p.Nth][:off], b.B...)
	done := int64(len(e.data[p.Nth])) == p.Len
	e.mu.Unlock()
	b.Release()
	if done {
		e.add("data %d", p.Nth)
	}
}

func (e *events) PutDone(_ int, p fabric.Piece)                      { e.add("put %d", p.Nth) }
func (e *events) ReadData(int, fabric.ReadID, int64, *fabric.Buffer) { e.add("not this one") }
func (e *events) ReadIntoDone(_ int, id fabric.ReadID, ok bool)      { e.add("read %d %v", id.ID, ok) }

func (e *events) Registered(op fabric.OpKey, err error) { e.add("registered %d: %v", op.Seq, err) }

func (e *events) Lost(peer int, err error) {
	var v *verbs.Error
	switch {
	case errors.Is(err, fabric.ErrGoodbye):
		e.add("goodbye %d", peer)
	case errors.As(err, &v):
		e.add("lost %d: peer %d, %v, %v", peer, v.Peer, v.Status, strings.HasPrefix(v.Device, "rxe0") && v.QP != 0)
	default:
		e.add("lost %d: %v", peer, err)
	}
}

// wait waits for an event.
func (e *events) wait(t *testing.T, want string) {
	t.Helper()
	late := time.After(30 * time.Second)
	for {
		e.mu.Lock()
		for _, got := range e.all {
			if got == want {
				e.mu.Unlock()
				return
			}
		}
		all, more := e.all, e.more
		e.mu.Unlock()
		select {
		case <-more:
		case <-late:
			t.Fatalf("no %q in %q", want, all)
		}
	}
}

func (e *events) has(want string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, got := range e.all {
		if got == want {
			return true
		}
	}
	return false
}

// piece is a piece that has arrived.
func (e *events) piece(nth uint32) []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.data[nth]
}

// end is one side of a pair.
type end struct {
	*verbs.RC
	ev  *events
	dev *verbs.Device
	log *output // of dev
}

// register registers a buffer, and waits until peers can read it.
func (e *end) register(t *testing.T, op fabric.OpKey, buf []byte) {
	t.Helper()
	if !e.Register(op, buf) {
		e.ev.wait(t, fmt.Sprintf("registered %d: <nil>", op.Seq))
	}
}

// pair starts two ranks.
func pair(t *testing.T) (a, b *end) {
	t.Helper()
	ends := ranks(t, 2)
	return ends[0], ends[1]
}

// ranks starts some ranks.
func ranks(t *testing.T, n int) []*end {
	t.Helper()
	ends := make([]*end, n)
	cards := make([]*verbs.Card, n)
	for i := range ends {
		log := &output{}
		d, err := verbs.Open("rxe0", 0, slog.New(slog.NewTextHandler(log, nil)))
		must(t, err)
		t.Cleanup(d.Close)
		rc, err := verbs.NewRC(d, i, n, time.Minute)
		must(t, err)
		t.Cleanup(func() { must(t, rc.Close()) })
		ends[i], cards[i] = &end{rc, newEvents(), d, log}, rc.Card()
	}
	for _, e := range ends {
		must(t, e.Introduce(cards))
	}
	for _, e := range ends {
		e.Start(e.ev, nil)
	}
	return ends
}

// Messages and pieces, small and large, arrive in both directions, although they exceed the credit by
// far.
func TestMessagesAndPuts(t *testing.T) {
	dummyNet(t)
	a, b := pair(t)
	const count = 300
	for i := range count {
		for _, e := range []*end{a, b} {
			to := 1
			if e == b {
				to = 0
			}
			if i%3 == 0 {
				e.SendMore(to, make([]byte, i+1))
			}
			e.Send(to, make([]byte, i))
		}
	}
	a.ev.wait(t, fmt.Sprintf("message 1 %d", count-1))
	b.ev.wait(t, fmt.Sprintf("message 0 %d", count-1))
	sizes := []int{0, 1, 16 << 10, 16<<10 + 1, 256 << 10, 1<<20 + 13}
	for i, n := range sizes {
		a.Put(1, fabric.Piece{Nth: uint32(i), Len: int64(n)}, content(n, i, 0))
	}
	for i, n := range sizes {
		b.ev.wait(t, fmt.Sprintf("data %d", i))
		a.ev.wait(t, fmt.Sprintf("put %d", i))
		if !bytes.Equal(b.ev.piece(uint32(i)), content(n, i, 0)) {
			t.Errorf("a piece of %d bytes arrived with other content", n)
		}
	}
	if frames := 4*count/3 + 16 + 2 + 66; a.Doorbells() > uint64(frames) {
		t.Errorf("%d doorbells for %d frames", a.Doorbells(), frames)
	}
}

// Reads go straight to their place, are valid only while the buffer is registered, and always end.
func TestReads(t *testing.T) {
	dummyNet(t)
	a, b := pair(t)
	op := fabric.OpKey{Comm: 3, Seq: 1 << 40}
	far, near := content(3<<20, 1, 1), make([]byte, 3<<20)
	a.register(t, op, near)
	b.register(t, op, far)
	read := func(id uint64, op fabric.OpKey, spans ...fabric.Span) {
		a.ReadInto(1, fabric.ReadRequest{ReadID: fabric.ReadID{Op: op, ID: id}, Spans: spans}, near)
	}
	const off, n = 12345, 2<<20 + 17
	read(1, op, fabric.Span{Off: off, Len: n})
	a.ev.wait(t, "read 1 true")
	if !bytes.Equal(near[off:off+n], far[off:off+n]) || near[off-1] != 0 || near[off+n] != 0 {
		t.Error("the read returned other bytes")
	}
	if a.Stats().DirectReads != 3 {
		t.Errorf("%d requests for 2 MiB and a bit, want 3", a.Stats().DirectReads)
	}
	// A read of unregistered memory is not valid, and the connection stays open.
	b.Unregister(op)
	read(2, op, fabric.Span{Len: 100})
	a.ev.wait(t, "read 2 false")
	read(3, fabric.OpKey{Comm: 9}, fabric.Span{Len: 100})
	a.ev.wait(t, "read 3 false")
	a.Unregister(op)
	a.Send(1, []byte("still there"))
	b.ev.wait(t, "message 0 11")
}

// A fetch of many spans takes one request per span, and one check.
func TestReadsOfManySpans(t *testing.T) {
	dummyNet(t)
	a, b := pair(t)
	op := fabric.OpKey{Seq: 5}
	const spans, each, long = 200, 1000, 1<<20 + 100
	size := spans*2*each + long
	far, near := content(size, 1, 1), make([]byte, size)
	a.register(t, op, near)
	b.register(t, op, far)
	req := fabric.ReadRequest{ReadID: fabric.ReadID{Op: op, ID: 1}}
	want := make([]byte, size)
	for i := range spans {
		off := int64(2*each*i + i%7)
		req.Spans = append(req.Spans, fabric.Span{Off: off, Len: each}, fabric.Span{Off: off})
		copy(want[off:off+each], far[off:])
	}
	req.Spans = append(req.Spans, fabric.Span{Off: int64(size - long), Len: long})
	copy(want[size-long:], far[size-long:])
	a.ReadInto(1, req, near)
	clear(req.Spans) // ReadInto has copied them
	a.ev.wait(t, "read 1 true")
	if !bytes.Equal(near, want) {
		t.Error("the read returned other bytes")
	}
	if a.Stats().DirectReads != spans+2 || a.Checks() != 1 {
		t.Errorf("%d requests and %d checks for %d spans, one longer than 1 MiB", a.Stats().DirectReads, a.Checks(), spans+1)
	}
	// A read with a span outside of the peer's buffer is refused.
	c := fabric.OpKey{Seq: 6}
	a.register(t, c, near)
	b.register(t, c, far[:100])
	req = fabric.ReadRequest{ReadID: fabric.ReadID{Op: c, ID: 2}, Spans: []fabric.Span{{Len: 100}, {Off: 100, Len: 1}}}
	a.ReadInto(1, req, near)
	a.ev.wait(t, "read 2 false")
	req = fabric.ReadRequest{ReadID: fabric.ReadID{Op: c, ID: 3}, Spans: []fabric.Span{{Off: 7}}}
	a.ReadInto(1, req, near)
	a.ev.wait(t, "read 3 true") // a read of no bytes
	a.Unregister(op)
	a.Unregister(c)
}

// Memory of Alloc is registered once, other memory once per operation.
func TestRegistrations(t *testing.T) {
	dummyNet(t)
	a, _ := pair(t)
	mem, err := a.Alloc(10_000)
	must(t, err)
	heap := make([]byte, 10_000)
	for i := range uint64(3) {
		op := fabric.OpKey{Seq: i}
		if !a.Register(op, mem[1:i+1000]) {
			t.Error("memory of Alloc was not ready at once")
		}
		a.Unregister(op)
		if made, _, saved := a.Registrations(); made != i || saved != i+1 {
			t.Errorf("%d registrations, %d saved, after %d operations", made, saved, i+1)
		}
		a.register(t, op, heap[3:])
		a.Unregister(op)
	}
	must(t, a.Free(mem))
	if a.Free(mem) == nil {
		t.Error("freed twice")
	}
}

// The death of a peer is detected even if nothing is sent to it.
func TestSilentDeath(t *testing.T) {
	dummyNet(t)
	a, b := pair(t)
	a.Send(1, []byte("hello"))
	b.ev.wait(t, "message 0 5")
	b.Die()
	a.ev.wait(t, "lost 1: peer 1, RETRY_EXC_ERR: the peer does not answer, true")
}

// A peer that leaves in order says goodbye. A dead peer does not answer.
func TestGoodbyeAndDeath(t *testing.T) {
	dummyNet(t)
	a, b := pair(t)
	a.Send(1, []byte("hello"))
	b.ev.wait(t, "message 0 5")
	must(t, a.Close())
	b.ev.wait(t, "goodbye 0")

	a, b = pair(t)
	a.Send(1, []byte("hello"))
	b.ev.wait(t, "message 0 5")
	b.Die()
	a.Put(1, fabric.Piece{Nth: 7, Len: 100_000}, make([]byte, 100_000))
	a.ev.wait(t, "put 7")
	a.ev.wait(t, "lost 1: peer 1, RETRY_EXC_ERR: the peer does not answer, true")
	if a.ev.has("goodbye 1") {
		t.Error("a dead peer was reported as leaving in order")
	}
}
