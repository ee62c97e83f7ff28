package datapath

import (
	"bytes"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/wire"
)

// piecesTest is the data of one rank's operation. The test plays the other ranks.
type piecesTest struct {
	*testing.T
	*pieces
	bufs *Buffers
}

// newPiecesTest makes rank 0 of an operation with blocks of n bytes.
func newPiecesTest(t *testing.T, kind wire.CallKind, algo string, size int, n int64, pool *scratch) *piecesTest {
	t.Helper()
	b := &Buffers{
		Group: &Group{Members: make([]int, size)}, Reduces: kind == wire.ReduceScatter, Type: reduce.U32, Op: reduce.Sum,
	}
	s := p2p.Spec{Kind: kind, Size: size, Bytes: n * int64(size), Counts: slices.Repeat([]int64{n}, size), Align: 4}
	var err error
	if b.Plan, err = p2p.New(algo, s); err != nil {
		t.Fatal(err)
	}
	b.Recv = make([]byte, n*int64(size))
	if b.Reduces {
		b.Send, b.Recv = b.Recv, make([]byte, n)
	}
	return &piecesTest{t, newPieces(b, p2p.NewInbox(b.Plan), pool), b}
}

// part hands over a part, and checks whether its piece was complete with it.
func (p *piecesTest) part(from int, nth uint32, length, off int64, b []byte, wantMore bool) (prefix, left int) {
	p.Helper()
	prefix, left, more, err := p.take(from, fabric.Piece{Nth: nth, Len: length}, off, b)
	if err != nil || more != wantMore {
		p.Fatalf("piece %d of rank %d, %d bytes from %d on: complete %v, want %v; %v",
			nth, from, len(b), off, more, wantMore, err)
	}
	return prefix, left
}

// Parts of a piece come in order. A part that is not the next one, not of the piece that is arriving,
// or longer than what is left changes nothing.
func TestPartsOutOfTurn(t *testing.T) {
	p := newPiecesTest(t, wire.Allgather, "linear", 3, 8, nil)
	data := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	bad := bytes.Repeat([]byte{0xee}, 8)
	p.part(1, 0, 8, 4, bad[:4], false) // the second part, and no first one
	p.part(1, 0, 9, 0, bad, false)     // a piece of another length
	p.part(1, 0, 7, 0, bad, false)     // longer than its piece
	p.part(1, 0, 8, 0, append(bad, 0), false)
	p.part(1, 1, 8, 0, bad, false) // a second piece
	p.part(0, 0, 8, 0, bad, false) // from this rank
	p.part(7, 0, 8, 0, bad, false) // from a rank that does not exist
	p.part(1, 0, 8, 0, data[:3], false)
	p.part(1, 0, 8, 0, bad[:3], false) // again
	p.part(1, 0, 8, 2, bad[:1], false) // bytes that are in place
	p.part(1, 0, 8, 4, bad[:4], false) // a part was left out
	p.part(1, 0, 8, 3, bad[:6], false) // more than is left
	p.part(1, 0, 9, 3, bad[:6], false) // its piece has become longer
	p.part(1, 1, 8, 3, bad[:5], false) // of another piece
	p.part(2, 0, 8, 3, bad[:5], false) // of another rank
	if !bytes.Equal(p.sums.result, append(make([]byte, 8), 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)) {
		t.Fatalf("unexpected parts were placed: %v", p.sums.result)
	}
	if prefix, left := p.part(2, 0, 8, 0, bad, true); left != 1 {
		t.Errorf("%d receives are complete, %d are not", prefix, left)
	}
	p.part(1, 0, 8, 3, data[3:4], false)
	if prefix, left := p.part(1, 0, 8, 4, data[4:], true); prefix != 2 || left != 0 {
		t.Errorf("%d receives are complete, %d are not", prefix, left)
	}
	p.part(1, 0, 8, 0, bad, false) // a duplicate
	if want := slices.Concat(make([]byte, 8), data, bad); !bytes.Equal(p.sums.result, want) {
		t.Errorf("got %v, want %v", p.sums.result, want)
	}
}

// Empty pieces are complete with their one part, and need no memory while they wait for their turn.
func TestEmptyPieces(t *testing.T) {
	withScratch(t, func(x *scratchTest) {
		p := newPiecesTest(x.T, wire.Allgather, "linear", 3, 0, &x.scratch)
		p.part(2, 0, 0, 0, nil, true)
		p.part(2, 0, 0, 0, nil, false)
		if prefix, left := p.part(1, 0, 0, 0, nil, true); prefix != 2 || left != 0 {
			x.Errorf("%d receives are complete, %d are not", prefix, left)
		}
		p = newPiecesTest(x.T, wire.ReduceScatter, "ring", 3, 0, &x.scratch)
		p.part(2, 1, 0, 0, nil, true) // before its turn
		if prefix, left := p.part(2, 0, 0, 0, nil, true); prefix != 2 || left != 0 {
			x.Errorf("%d receives are complete, %d are not", prefix, left)
		}
		if x.timer != nil {
			x.Error("what was never taken came back")
		}
	})
}

// No correct rank cuts an element. The part is not added, so the peer can be given up.
func TestPartOfAnElement(t *testing.T) {
	withScratch(t, func(x *scratchTest) {
		for _, kept := range []uint32{0, 1} { // the second piece waits for its turn
			p := newPiecesTest(x.T, wire.ReduceScatter, "ring", 3, 8, &x.scratch)
			for _, n := range []int{1, 2, 3, 5, 7} {
				_, _, more, err := p.take(2, fabric.Piece{Nth: kept, Len: 8}, 0, make([]byte, n))
				if err == nil || more {
					x.Errorf("%d bytes of elements of 4: no error", n)
				}
				p = newPiecesTest(x.T, wire.ReduceScatter, "ring", 3, 8, &x.scratch)
			}
			p.part(2, kept, 8, 0, make([]byte, 4), false)
			p.part(2, kept, 8, 4, make([]byte, 4), true)
			p.release()
		}
		p := newPiecesTest(x.T, wire.Allgather, "linear", 3, 8, &x.scratch)
		p.part(1, 0, 8, 0, make([]byte, 3), false) // only reductions have elements
	})
}

// Pieces of one rank may arrive side by side, as when one of them came before the operation began. A
// piece that is whole does not end another one.
func TestPiecesSideBySide(t *testing.T) {
	p := newPiecesTest(t, wire.Allgather, "ring", 4, 8, nil)
	a, b, c := bytes.Repeat([]byte{1}, 8), bytes.Repeat([]byte{2}, 8), bytes.Repeat([]byte{3}, 8)
	p.part(3, 1, 8, 0, b[:4], false)
	p.part(3, 2, 8, 0, c[:1], false)
	p.part(3, 0, 8, 0, a, true)
	p.part(3, 2, 8, 1, c[1:], true)
	if prefix, left := p.part(3, 1, 8, 4, b[4:], true); prefix != 3 || left != 0 {
		t.Errorf("%d receives are complete, %d are not", prefix, left)
	}
	if want := slices.Concat(make([]byte, 8), c, b, a); !bytes.Equal(p.sums.result, want) {
		t.Errorf("got %v, want %v", p.sums.result, want)
	}
}

// An operation that ends early gives everything back: pieces that are arriving, pieces that wait for
// their turn, and sums.
func TestReleaseGivesBack(t *testing.T) {
	const n = 3 << 18
	half := make([]byte, n/2)
	for name, f := range map[string]func(p *piecesTest){
		"nothing came": func(*piecesTest) {},
		"a sum":        func(p *piecesTest) { p.part(4, 0, n, 0, half, false) },
		"a whole sum":  func(p *piecesTest) { p.part(4, 0, n, 0, make([]byte, n), true) },
		"a kept piece": func(p *piecesTest) { p.part(4, 1, n, 0, half, false) },
		"a held piece": func(p *piecesTest) { p.part(4, 1, n, 0, make([]byte, n), true) },
		"a kept piece that is longer than it says": func(p *piecesTest) {
			p.part(4, 1, n, 0, make([]byte, n+4), false)
			p.part(4, 1, n, 0, half, false)
			p.part(4, 1, 2*n, n/2, make([]byte, n), false)
		},
		"several kept": func(p *piecesTest) { p.part(4, 1, n, 0, half, false); p.part(4, 2, n, 0, half, false) },
		"kept and held": func(p *piecesTest) {
			p.part(4, 3, n, 0, half, false)
			p.part(4, 2, n, 0, make([]byte, n), true)
		},
		"a sum on its way": func(p *piecesTest) {
			p.part(4, 0, n, 0, make([]byte, n), true)
			s := p.bufs.Plan.Sends[1]
			p.source(1, 1, &s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			withScratch(t, func(x *scratchTest) {
				p := newPiecesTest(x.T, wire.ReduceScatter, "ring", 5, n, &x.scratch)
				f(p)
				used := len(x.sys.inUse)
				if name != "nothing came" && used == 0 {
					x.Error("no scratch memory was used")
				}
				p.release()
				p.release() // does no harm
				if x.close(); len(x.sys.inUse) != 0 {
					x.Errorf("%d of %d pieces of scratch memory did not come back", len(x.sys.inUse), used)
				}
			})
		})
	}
}

// Only the end of a put gives the memory of its sum back, and only the put of that sum does.
func TestPutDoneGivesBack(t *testing.T) {
	withScratch(t, func(x *scratchTest) {
		const n = 3 << 18
		p := newPiecesTest(x.T, wire.ReduceScatter, "ring", 3, n, &x.scratch)
		sends := p.bufs.Plan.Sends
		first := p.source(1, 0, &sends[0])
		if !sends[0].Input || !same(first, p.bufs.Send[sends[0].Off:]) {
			x.Fatal("the first send is not from the input")
		}
		p.part(2, 0, n, 0, make([]byte, n), true)
		second := p.source(1, 1, &sends[1])
		if sends[1].Input || len(second) != n || len(x.sys.inUse) != 1 {
			x.Fatalf("%d bytes of a sum, %d pieces of scratch memory", len(second), len(x.sys.inUse))
		}
		p.sent(1, 0)
		p.sent(2, 1) // of another rank
		if got := x.get(n); same(got, second) {
			x.Error("the memory of a sum came back before it was sent")
		}
		p.sent(1, 1)
		p.sent(1, 1) // does no harm
		if got := x.get(n); !same(got, second) {
			x.Error("the memory of a sum did not come back when it was sent")
		}
	})
}

// A peer cannot make a rank remember pieces that it does not expect.
func TestUnexpectedPiecesAreNotRemembered(t *testing.T) {
	p := newPiecesTest(t, wire.ReduceScatter, "ring", 2, 4, nil)
	for nth := range uint32(1000) {
		p.part(1, 7+nth, 1<<40, 0, make([]byte, 4), false)
	}
	if len(p.arriving)+len(p.held) > 0 {
		t.Errorf("%d pieces are remembered", len(p.arriving)+len(p.held))
	}
}
