package fabrictest

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/fabric"
)

// waitLimit is how long a test waits for an event. Some networks need seconds to notice a crash.
const waitLimit = 60 * time.Second

// recorder is a Handler that records its events, and checks what must hold for any of them.
type recorder struct {
	mu      sync.Mutex
	changed chan struct{}
	order   map[int][]string // messages and ends of pieces, by peer
	pieces  map[int]map[fabric.Piece][]byte
	done    map[int]map[fabric.Piece]int
	reads   map[fabric.ReadID][]byte
	ended   map[fabric.ReadID][]bool // direct reads
	ready   map[fabric.OpKey]error   // late registrations
	lost    map[int][]error
	broken  []string // violations of the contract
	closed  bool     // the network must not call the handler

	hold bool // keep all buffers
	held []*fabric.Buffer
}

func newRecorder() *recorder {
	return &recorder{
		changed: make(chan struct{}), order: map[int][]string{}, pieces: map[int]map[fabric.Piece][]byte{},
		done: map[int]map[fabric.Piece]int{}, reads: map[fabric.ReadID][]byte{}, ended: map[fabric.ReadID][]bool{},
		ready: map[fabric.OpKey]error{}, lost: map[int][]error{},
	}
}

func (r *recorder) record(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		r.broken = append(r.broken, "an event after Close")
	}
	f()
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *recorder) fail(format string, args ...any) {
	r.broken = append(r.broken, fmt.Sprintf(format, args...))
}

// from checks that a peer that was lost sends nothing more.
func (r *recorder) from(peer int) {
	if len(r.lost[peer]) > 0 {
		r.fail("rank %d sent something after it was lost", peer)
	}
}

func (r *recorder) Message(from int, msg []byte) {
	r.record(func() {
		r.from(from)
		r.order[from] = append(r.order[from], string(msg))
	})
}

func (r *recorder) Data(from int, p fabric.Piece, off int64, b *fabric.Buffer) {
	r.record(func() {
		r.from(from)
		if r.pieces[from] == nil {
			r.pieces[from] = map[fabric.Piece][]byte{}
		}
		had, begun := r.pieces[from][p]
		if int64(len(had)) != off || off+int64(len(b.B)) > p.Len || len(b.B) == 0 && (p.Len > 0 || begun) {
			r.fail("%d bytes at %d of %+v after %d bytes", len(b.B), off, p, len(had))
		}
		had = append(had, b.B...)
		if r.pieces[from][p] = had; int64(len(had)) == p.Len {
			r.order[from] = append(r.order[from], fmt.Sprintf("piece %d", p.Nth))
		}
	})
	r.keep(b)
}

func (r *recorder) ReadData(from int, id fabric.ReadID, off int64, b *fabric.Buffer) {
	r.record(func() {
		r.from(from)
		if had := r.reads[id]; int64(len(had)) != off {
			r.fail("%d bytes at %d of %+v after %d bytes", len(b.B), off, id, len(had))
		}
		r.reads[id] = append(r.reads[id], b.B...)
	})
	r.keep(b)
}

func (r *recorder) keep(b *fabric.Buffer) {
	r.mu.Lock()
	hold := r.hold
	if hold {
		r.held = append(r.held, b)
	}
	r.mu.Unlock()
	if !hold {
		b.Release()
	}
}

// release gives all buffers back, and keeps none from now on.
func (r *recorder) release() {
	r.mu.Lock()
	held := r.held
	r.hold, r.held = false, nil
	r.mu.Unlock()
	for _, b := range held {
		b.Release()
	}
}

func (r *recorder) PutDone(to int, p fabric.Piece) {
	r.record(func() {
		if r.done[to] == nil {
			r.done[to] = map[fabric.Piece]int{}
		}
		if r.done[to][p]++; r.done[to][p] > 1 {
			r.fail("put %+v to rank %d is done twice", p, to)
		}
	})
}

func (r *recorder) ReadIntoDone(_ int, id fabric.ReadID, ok bool) {
	r.record(func() {
		if r.ended[id] = append(r.ended[id], ok); len(r.ended[id]) > 1 {
			r.fail("direct read %+v has ended twice", id)
		}
	})
}

func (r *recorder) Registered(op fabric.OpKey, err error) { r.record(func() { r.ready[op] = err }) }

func (r *recorder) Lost(peer int, err error) {
	r.record(func() {
		if r.lost[peer] = append(r.lost[peer], err); len(r.lost[peer]) > 1 {
			r.fail("rank %d was lost more than once: %v", peer, r.lost[peer])
		}
	})
}

// wait blocks until ok, which runs under the lock.
func (r *recorder) wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit := time.NewTimer(waitLimit)
	defer limit.Stop()
	for {
		r.mu.Lock()
		is, changed := ok(), r.changed
		r.mu.Unlock()
		if is {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			r.mu.Lock()
			defer r.mu.Unlock()
			t.Fatalf("still waiting for %s: lost %v, done %v", what, r.lost, r.done)
		}
	}
}

func (r *recorder) waitMessage(t *testing.T, from int, msg string) {
	t.Helper()
	r.wait(t, fmt.Sprintf("%q from rank %d", msg, from), func() bool { return slices.Contains(r.order[from], msg) })
}

func (r *recorder) waitLost(t *testing.T, peer int) error {
	t.Helper()
	r.wait(t, fmt.Sprintf("the loss of rank %d", peer), func() bool { return len(r.lost[peer]) > 0 })
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost[peer][0]
}

func (r *recorder) waitDone(t *testing.T, to int, p fabric.Piece) {
	t.Helper()
	r.wait(t, fmt.Sprintf("the end of put %+v", p), func() bool { return r.done[to][p] > 0 })
}

// waitPiece blocks until a piece is complete, and compares its bytes.
func (r *recorder) waitPiece(t *testing.T, from int, p fabric.Piece, want []byte) {
	t.Helper()
	r.wait(t, fmt.Sprintf("piece %+v", p), func() bool {
		had, begun := r.pieces[from][p]
		return begun && int64(len(had)) == p.Len
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if !bytes.Equal(r.pieces[from][p], want) {
		t.Errorf("piece %+v arrived with other bytes", p)
	}
}

// check reports violations of the contract.
func (r *recorder) check(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.broken {
		t.Error(b)
	}
}
