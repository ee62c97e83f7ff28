package engine

import (
	"errors"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/protocol"
	"github.com/allcast/allcast/internal/reduce"
)

// reducing is rank 0 of 2 in a reduction, the first call on World, whose other rank
// is the test.
func reducing(t *testing.T) (*Engine, fabric.Handler, *Request) {
	t.Helper()
	n := newMemNet(2)
	e := n.engines(t)[0]
	r, err := e.Start(World, Call{Kind: protocol.Allreduce, Algo: "ring", Recv: make([]byte, 8), Type: reduce.F32, Op: reduce.Sum})
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

func TestUnwantedPiecesAreNotRemembered(t *testing.T) {
	e, h, _ := reducing(t)
	for nth := range uint32(1000) {
		h.Data(1, fabric.Piece{Op: fabric.OpKey{Comm: World}, Nth: 7 + nth, Len: 1 << 40}, 0, &fabric.Buffer{B: make([]byte, 4)})
	}
	e.do(func() {
		if len(e.pieces) > 0 {
			t.Errorf("%d pieces are remembered", len(e.pieces))
		}
	})
}

func TestPartsAreSignsOfLife(t *testing.T) {
	n := newMemNet(2)
	m := n.ranks[0]
	m.net = n
	e, err := New(Config{
		Rank: 0, Size: 2, Secret: []byte("secret"), Timeout: 1e9,
		Reliable: func(fabric.Handler) (fabric.Reliable, error) { return silent{memReliable{m}}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	const ms = protocol.Millisecond
	e.do(func() {
		piece := fabric.Piece{Op: fabric.OpKey{Comm: World}, Len: 1 << 40}
		for now := 10 * ms; now < 5000*ms; now += 10 * ms {
			switch now / ms % 200 {
			case 0:
				e.data(now, &task{peer: 1, piece: piece, off: int64(now), buf: &fabric.Buffer{B: make([]byte, 4)}})
			case 100:
				e.readData(now, &task{peer: 1, buf: &fabric.Buffer{B: make([]byte, 4)}})
			}
			e.node.Timer(now)
		}
		for _, a := range e.node.Actions() {
			if a.Kind == node.Drop {
				t.Errorf("rank %d was given up while it sent", a.To)
			}
		}
	})
}

// silent is a network on which nobody is.
type silent struct{ memReliable }

func (silent) Send(int, []byte)     {}
func (silent) SendMore(int, []byte) {}

// A slot has one claimant: an answer that comes before the receive worker has
// stepped back is not ours.
func TestAnswersBeforeTheQuestion(t *testing.T) {
	e := newMemNet(2).engines(t)[0]
	mem := make([]byte, 100)
	op := &operation{key: fabric.OpKey{Comm: World}, call: &call{mem: &mem}}
	e.do(func() {
		e.reads[1] = &read{op: op, peer: 1, length: 100}
		answer := make([]byte, 10)
		answer[0] = 1
		e.readData(0, &task{peer: 1, rng: fabric.Range{Op: op.key, ID: 1, Len: 100}, buf: &fabric.Buffer{B: answer}})
		delete(e.reads, 1)
	})
	if mem[0] != 0 {
		t.Error("it was placed")
	}
}
