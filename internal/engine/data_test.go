package engine

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// reducing is rank 0 of 2 in a reduction, the first call on World, whose other rank
// is the test.
func reducing(t *testing.T) (*Engine, fabric.Handler, *Request) {
	t.Helper()
	n := newMemNet(2)
	e := n.engines(t)[0]
	r, err := e.Start(World, Call{Kind: wire.Allreduce, Algo: "ring", Recv: make([]byte, 8), Type: reduce.F32, Op: reduce.Sum})
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
	key := fabric.OpKey{Comm: World}
	for nth := range uint32(1000) {
		h.Data(1, fabric.Piece{Op: key, Nth: 7 + nth, Len: 1 << 40}, 0, &fabric.Buffer{B: make([]byte, 4)})
	}
	p := e.transfers.find(key).pieces
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.arriving)+len(p.held) > 0 {
		t.Errorf("%d pieces are remembered", len(p.arriving)+len(p.held))
	}
}

// Pieces that nobody expects are counted, whether the operation completes or fails.
func TestUnwantedPiecesAreCounted(t *testing.T) {
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
	n := newMemNet(2)
	m := n.ranks[0]
	m.net = n
	e, err := New(Config{
		Job: settings.Job{Rank: 0, Size: 2}, Secret: []byte("secret"), Liveness: settings.Liveness{Timeout: 1e9},
		Reliable: func(fabric.Handler) (fabric.Reliable, error) { return reliable(silent{memReliable{m}}), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	const ms = step.Millisecond
	e.do(func() {
		for now := 10 * ms; now < 5000*ms; now += 10 * ms {
			if now/ms%200 == 0 {
				e.signs[1].Store(int64(now))
			}
			e.hear()
			e.node.Timer(now)
		}
		for _, a := range e.node.Actions() {
			if a.Kind == node.Drop {
				t.Errorf("rank %d was given up while it sent", a.To)
			}
		}
	})
	before := e.signs[1].Load()
	h := (*handler)(e)
	h.Data(1, fabric.Piece{Op: fabric.OpKey{Comm: World}, Len: 1 << 40}, 4, &fabric.Buffer{B: make([]byte, 4)})
	data := e.signs[1].Load()
	h.ReadData(1, fabric.ReadID{}, 0, &fabric.Buffer{B: make([]byte, 4)})
	if read := e.signs[1].Load(); data == before || read == data {
		t.Errorf("signs of life at %d, after data at %d, after an answer at %d", before, data, read)
	}
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
	answer := func() {
		(*handler)(e).ReadData(1, fabric.ReadID{Op: op.key, ID: 1}, 0, &fabric.Buffer{B: []byte{1, 2, 3}})
	}
	if answer(); mem[0] != 0 {
		t.Error("it was placed before it was asked for")
	}
	e.reads.add(&read{id: 1, op: op, peer: 1, spans: []fabric.Span{{Off: 0, Len: 10}}, size: 10})
	if answer(); mem[0] != 1 {
		t.Error("it was not placed after it was asked for")
	}
	// An operation that has failed is not written to any more.
	e.reads.add(&read{id: 1, op: op, peer: 1, spans: []fabric.Span{{Off: 0, Len: 10}}, size: 10})
	op.pins.close()
	mem[0] = 0
	if answer(); mem[0] != 0 {
		t.Error("it was placed after the operation had failed")
	}
}

// An answer goes to the spans that were asked for, whatever parts it comes in.
func TestAnswersAreScattered(t *testing.T) {
	for _, part := range []int{1, 3, 7, 30} {
		mem := make([]byte, 100)
		g := oneChunk(t, len(mem))
		op := &operation{call: &call{mem: &mem}}
		l := &landing{op: op, place: g}
		r := &read{op: op, landing: l, spans: []fabric.Span{{Off: 5, Len: 10}, {Off: 40, Len: 1}, {Off: 90, Len: 10}}, size: 21}
		sent := make([]byte, r.size)
		for i := range sent {
			sent[i] = byte(i + 1)
		}
		for off := 0; off < len(sent); off += part {
			last, err := r.answered(int64(off), sent[off:min(off+part, len(sent))])
			if err != nil || last != (off+part >= len(sent)) {
				t.Fatalf("parts of %d: at %d last %v, %v", part, off, last, err)
			}
		}
		if _, err := r.answered(r.size, []byte{1}); err == nil {
			t.Error("more than was asked for is taken")
		}
		got := slices.Concat(mem[5:15], mem[40:41], mem[90:])
		if !bytes.Equal(got, sent) || mem[4]|mem[15]|mem[39]|mem[41]|mem[89] != 0 {
			t.Errorf("parts of %d: %v", part, mem)
		}
	}
}

// oneChunk is the placement of a broadcast of one chunk.
func oneChunk(t *testing.T, n int) *mcast.Placement {
	t.Helper()
	layout, _ := wire.NewLayout(0)
	plan, err := mcast.Plan(mcast.Shape{Kind: wire.Broadcast, Counts: []int64{int64(n), 0}, Chunk: n, Chains: 1, Subgroups: 1}, layout)
	if err != nil {
		t.Fatal(err)
	}
	return mcast.New(mcast.Config{Geometry: plan[0], Rank: 1, Est: mcast.NewEstimator(mcast.Limits{})}).Placements()[0]
}
