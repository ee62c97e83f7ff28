package mcast

import (
	"testing"

	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/wire"
)

// An Intake expects the chunks of its stream in their order: from the start of an operation on, across
// this rank's own block, and at the start of the next operation.
func TestExpectFollowsTheStream(t *testing.T) {
	s := allgather(6, 24, 8, 2, 1)
	s.Streams = 2
	g := oneRound(t, s) // chains 0-2 and 3-5, 3 chunks per rank
	l := mustLayout(t, 0)
	in := NewIntake(l, 1<<20, &place.Taken{}, func() *Report { return &Report{} })
	stream := g.stream(4, 0)
	for seq := range uint64(2) {
		in.Open(seq+1, newPlacement(g, stream, 4, 3, seq))
	}
	slots := make([]Slot, 3)
	for seq := range uint64(2) {
		for _, rank := range []int{3, 5} { // rank 4 is this one
			psn, n := g.Block(stream, rank)
			p, k := in.Expect(slots)
			if k != int(n) || p.Seq != seq {
				t.Fatalf("operation %d, block of rank %d: %d slots are expected", seq, rank, k)
			}
			for i := range k {
				off, _, _ := g.Locate(stream, psn+uint32(i))
				if slots[i].Off != off || !in.Fits(i, seq+1, l.Imm(seq, psn+uint32(i))) {
					t.Errorf("operation %d, rank %d: chunk %d is expected at %d, want %d", seq, rank, i, slots[i].Off, off)
				}
			}
			in.Arrived(k)
		}
	}
	if _, k := in.Expect(slots); k > 0 {
		t.Errorf("%d chunks are expected after the last one", k)
	}
	if r := in.Flush(); wire.Chunks([]wire.Range{r.Runs[0].Range}) != 3 || r.Chunks != 12 {
		t.Errorf("report %+v", r)
	}
}
