//go:build verbs

package verbs_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/verbs"
)

// count returns how often an event was recorded.
func (e *events) count(want string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, got := range e.all {
		if got == want {
			n++
		}
	}
	return n
}

// A goroutine registers memory, and the caller does not wait for it. A peer that asks for the buffer
// meanwhile gets its answer after the registration.
func TestRegisterLater(t *testing.T) {
	dummyNet(t)
	a, b := pair(t)
	op := fabric.OpKey{Seq: 1}
	far, near := content(100_000, 1, 1), make([]byte, 100_000)
	b.register(t, op, near)
	open := a.Gate()
	if a.Register(op, far) {
		t.Fatal("memory that is not registered was ready")
	}
	b.ReadInto(0, fabric.ReadRequest{ReadID: fabric.ReadID{Op: op, ID: 1}, Spans: []fabric.Span{{Len: 100_000}}}, near)
	b.Send(0, []byte("hello")) // sent behind the question
	a.ev.wait(t, "message 1 5")
	if a.ev.has("registered 1: <nil>") || b.ev.has("read 1 false") || b.ev.has("read 1 true") {
		t.Error("the buffer was registered while the gate was closed")
	}
	open(nil)
	b.ev.wait(t, "read 1 true")
	a.ev.wait(t, "registered 1: <nil>")
	if !bytes.Equal(near, far) {
		t.Error("the read returned other bytes")
	}
	a.Unregister(op)
	b.Unregister(op)
}

// A peer that asks several times for a buffer is recorded once.
func TestAskTwice(t *testing.T) {
	dummyNet(t)
	a, b := pair(t)
	op := fabric.OpKey{Seq: 1}
	open := a.Gate()
	if a.Register(op, make([]byte, 100_000)) {
		t.Fatal("memory that is not registered was ready")
	}
	b.Ask(0, op, op, op)
	b.Send(0, []byte("hello")) // sent behind the questions
	a.ev.wait(t, "message 1 5")
	if asking, exposed := a.Readers(op); asking != 1 || exposed != 0 {
		t.Errorf("%d peers wait for the buffer, and %d know it", asking, exposed)
	}
	open(nil)
	a.ev.wait(t, "registered 1: <nil>")
	b.Ask(0, op, op)
	b.Send(0, []byte("again!"))
	a.ev.wait(t, "message 1 6")
	if asking, exposed := a.Readers(op); asking != 0 || exposed != 1 {
		t.Errorf("%d peers wait for the buffer, and %d know it", asking, exposed)
	}
	a.Unregister(op)
}

// A peer that keeps asking and takes no answers is lost, since waiting answers take memory.
func TestAnswersAreBounded(t *testing.T) {
	dummyNet(t)
	a, b := pair(t)
	b.Send(0, []byte("first"))
	a.ev.wait(t, "message 1 5") // they are connected
	b.TakeNothing(0)
	lost := fmt.Sprintf("lost 1: the peer violates the protocol: it keeps asking while %d answers wait for room",
		verbs.MaxAnswers)
	var ops [16]fabric.OpKey
	late := time.Now().Add(30 * time.Second)
	for round := 1; !a.ev.has(lost); round++ { // the first message counts, too
		for i := range ops {
			ops[i].Seq++
		}
		b.Ask(0, ops[:]...)
		b.Send(0, []byte("hello"))
		for a.ev.count("message 1 5") <= round && !a.ev.has(lost) { // without this pause, a would run out of receives
			if time.Now().After(late) {
				t.Fatalf("not lost after %d questions", round*len(ops))
			}
			time.Sleep(100 * time.Microsecond)
		}
		if round*len(ops) > 2*verbs.MaxAnswers {
			t.Fatalf("not lost after %d questions", round*len(ops))
		}
	}
	b.Die()
}

// An operation that ends while its memory is being registered gets one Registered, and nothing stays
// registered. The same holds for an operation whose memory cannot be registered.
func TestUnregisterEarly(t *testing.T) {
	dummyNet(t)
	a, _ := pair(t)
	open := a.Gate()
	op := fabric.OpKey{Seq: 1}
	if a.Register(op, make([]byte, 100_000)) {
		t.Fatal("memory that is not registered was ready")
	}
	a.Unregister(op)
	open(nil)
	a.ev.wait(t, "registered 1: <nil>")
	a.Settle()
	if made, ended, _ := a.Registrations(); made != 1 || ended != 1 {
		t.Errorf("%d registrations, and %d ended", made, ended)
	}
	open = a.Gate()
	full := errors.New("out of memory")
	a.Register(fabric.OpKey{Seq: 2}, make([]byte, 100_000))
	open(full)
	a.ev.wait(t, "registered 2: out of memory")
	a.Unregister(fabric.OpKey{Seq: 2})
	for _, e := range []string{"registered 1: <nil>", "registered 2: out of memory"} {
		if n := a.ev.count(e); n != 1 {
			t.Errorf("%q came %d times", e, n)
		}
	}
}

// A large piece waits for its registration, and later frames wait for the piece. A piece that is
// cancelled meanwhile ends with its registration.
func TestPutsWaitForMemory(t *testing.T) {
	dummyNet(t)
	a, b := pair(t)
	open := a.Gate()
	const n = 256 << 10
	op := fabric.OpKey{Seq: 9}
	a.Put(1, fabric.Piece{Nth: 1, Len: n}, content(n, 1, 0))
	a.Put(1, fabric.Piece{Op: op, Nth: 2, Len: n}, content(n, 2, 0))
	a.Put(1, fabric.Piece{Nth: 3, Len: 100}, content(100, 3, 0))
	a.Send(1, []byte("after"))
	a.Cancel(op)
	b.Send(0, []byte("hello"))
	a.ev.wait(t, "message 1 5") // frames of the other end do not wait
	if a.ev.has("put 1") || a.ev.has("put 2") || b.ev.has("data 3") || b.ev.has("message 0 5") {
		t.Error("a frame did not wait for the registration")
	}
	open(nil)
	b.ev.wait(t, "message 0 5")
	a.ev.wait(t, "put 1")
	a.ev.wait(t, "put 2")
	a.ev.wait(t, "put 3")
	b.ev.mu.Lock()
	got := slices.Clone(b.ev.all)
	b.ev.mu.Unlock()
	if want := []string{"data 1", "data 3", "message 0 5"}; !slices.Equal(got, want) {
		t.Errorf("%q came, want %q", got, want)
	}
	if !bytes.Equal(b.ev.piece(1), content(n, 1, 0)) {
		t.Error("the piece arrived with other content")
	}
	a.Settle()
	if made, ended, _ := a.Registrations(); made != 2 || ended != 2 {
		t.Errorf("%d registrations, and %d ended", made, ended)
	}
}

// A piece that waits for its registration ends when the peer is dropped.
func TestDropWhileRegistering(t *testing.T) {
	dummyNet(t)
	a, _ := pair(t)
	open := a.Gate()
	a.Put(1, fabric.Piece{Nth: 1, Len: 100_000}, make([]byte, 100_000))
	closed := make(chan error)
	go func() { closed <- a.Close() }()
	open(nil)
	must(t, <-closed)
	if !a.ev.has("put 1") {
		t.Error("the handler was not called")
	}
}

// Alloc fails after Close. Users may access memory of Alloc until they free it.
func TestAllocAfterClose(t *testing.T) {
	dummyNet(t)
	a, _ := pair(t)
	mem, err := a.Alloc(10_000)
	must(t, err)
	must(t, a.Close())
	a.dev.Close()
	if _, err := a.Alloc(1); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("Alloc after Close: %v", err)
	}
	copy(mem, content(len(mem), 1, 1))
	must(t, a.Free(mem))
	if a.Free(mem) == nil {
		t.Error("freed twice")
	}
}
