package control

import (
	"errors"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/wire"
)

// The number of pieces that a rank keeps for later calls of a peer is bounded, even if they are empty.
func TestEmptyEarlyPiecesAreBounded(t *testing.T) {
	n := newMemNet(2)
	e := n.engines(t)[0]
	kept := func() (pieces, cost int) {
		e.do(func() {
			for _, of := range e.early.pieces {
				pieces += len(of)
			}
			cost = e.early.kept[1]
		})
		return pieces, cost
	}
	limit := e.earlyLimit() / earlyCost
	for i := range limit + 10 {
		op := fabric.OpKey{Comm: World, Seq: uint64(i % 1000)}
		n.ranks[0].h.Data(1, fabric.Piece{Op: op, Nth: uint32(i / 1000)}, 0, &fabric.Buffer{})
	}
	if pieces, _ := kept(); pieces > limit {
		t.Fatalf("%d pieces are kept, want at most %d", pieces, limit)
	}
	r, err := e.Start(World, Call{Kind: wire.Barrier, Algo: "dissemination"})
	if err != nil {
		t.Fatal(err)
	}
	<-r.Done()
	var failed *node.Error
	if !errors.As(r.Err(), &failed) || failed.Culprit != 1 {
		t.Errorf("got %v, want that rank 1 is lost", r.Err())
	}
	if pieces, cost := kept(); pieces != 0 || cost != 0 {
		t.Errorf("%d pieces that cost %d are left of a communicator that broke", pieces, cost)
	}
}

// A correct peer stays below the limit even if it is as far ahead as possible, with as many pieces as
// possible. A call with more pieces is not eager.
func TestEarlyPiecesOfACorrectPeer(t *testing.T) {
	for _, segment := range []int64{node.EagerLimit / node.EagerSegments, 100} {
		all := newMemNet(2).engines(t)
		var reqs []*Request
		for _, e := range all {
			for range 10 {
				r, err := e.Start(World, Call{
					Kind: wire.Broadcast, Algo: "chain", Segment: segment, Recv: make([]byte, node.EagerLimit),
				})
				if err != nil {
					t.Fatal(err)
				}
				reqs = append(reqs, r)
			}
			if e == all[0] {
				pieces := 0
				e.do(func() {}) // all pieces have been sent
				all[1].do(func() {
					for _, of := range all[1].early.pieces {
						pieces += len(of)
					}
				})
				if eager := segment >= node.EagerLimit/node.EagerSegments; eager != (pieces >= node.EagerSegments) {
					t.Errorf("segments of %d bytes: %d pieces are kept", segment, pieces)
				}
			}
		}
		for i, r := range reqs {
			<-r.Done()
			if r.Err() != nil {
				t.Fatalf("segments of %d bytes, request %d: %v", segment, i, r.Err())
			}
		}
	}
}
