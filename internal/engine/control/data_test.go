package control

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/wire"
)

// reducing starts a reduction on rank 0 of 2, the first call on World. The test plays rank 1.
func reducing(t *testing.T) (*engine, fabric.Handler, *Request) {
	t.Helper()
	n := newMemNet(2)
	e := n.engines(t)[0]
	r, err := e.Start(World, Call{
		Kind: wire.Allreduce, Algo: "ring", Recv: make([]byte, 8), Type: reduce.F32, Op: reduce.Sum,
	})
	if err != nil {
		t.Fatal(err)
	}
	return e, n.ranks[0].h, r
}

func TestHalfAnElement(t *testing.T) {
	_, h, r := reducing(t)
	h.Data(1, fabric.Piece{Op: fabric.OpKey{Comm: World}, Len: 4}, 0, &fabric.Buffer{B: make([]byte, 3)})
	<-r.Done()
	var e *node.Error
	if !errors.As(r.Err(), &e) || e.Culprit != 1 {
		t.Errorf("got %v, want that rank 1 failed", r.Err())
	}
}

// Unexpected pieces are counted, whether the operation completes or fails.
func TestUnexpectedPiecesAreCounted(t *testing.T) {
	for _, fails := range []bool{false, true} {
		n := newMemNet(2)
		all := n.engines(t)
		var reqs []*Request
		for _, e := range all {
			if e == all[1] {
				for nth := range uint32(10) {
					p := fabric.Piece{Op: fabric.OpKey{Comm: World}, Nth: 7 + nth, Len: 4}
					n.ranks[0].h.Data(1, p, 0, &fabric.Buffer{B: make([]byte, 4)})
				}
				if fails {
					if err := e.Abort(World); err != nil {
						t.Fatal(err)
					}
				}
			}
			r, err := e.Start(World, Call{
				Kind: wire.Allreduce, Algo: "ring", Recv: make([]byte, 8), Type: reduce.F32, Op: reduce.Sum,
			})
			if err != nil {
				t.Fatal(err)
			}
			reqs = append(reqs, r)
		}
		for _, r := range reqs {
			<-r.Done()
			if (r.Err() != nil) != fails {
				t.Fatalf("fails %v: %v", fails, r.Err())
			}
		}
		if f := all[0].Stats().Foreign; f != 10 {
			t.Errorf("fails %v: %d pieces are counted as foreign, want 10", fails, f)
		}
	}
}

func TestPartsAreSignsOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet(2)
		m := n.ranks[0]
		m.net = n
		e, err := newEngine(Config{
			Config: process(0, 2), Secret: []byte("secret"), Liveness: settings.Liveness{Timeout: 1e9},
			Reliable: func(fabric.Handler) (fabric.Reliable, error) { return reliable(silent{memReliable{m}}), nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close() }()
		h := handler{e.data, (*upcalls)(e.Control)}
		part := func() *fabric.Buffer { return &fabric.Buffer{B: make([]byte, 4)} }
		signs := []func(){
			func() { h.Data(1, fabric.Piece{Op: fabric.OpKey{Comm: World}, Len: 1 << 40}, 4, part()) },
			func() { h.ReadData(1, fabric.ReadID{}, 0, part()) },
		}
		e.do(func() {
			for i := range 500 {
				e.start = e.start.Add(-10 * time.Millisecond) // the clock moves on
				if i%20 == 0 {
					signs[i/20%len(signs)]()
				}
				e.hear()
				e.node.Timer(e.now())
			}
			for _, a := range e.node.Actions() {
				if a.Kind == node.Drop {
					t.Errorf("rank %d was given up while it sent", a.To)
				}
			}
		})
	})
}

// silent is a network without other ranks.
type silent struct{ memReliable }

func (silent) Send(int, []byte)     {}
func (silent) SendMore(int, []byte) {}
