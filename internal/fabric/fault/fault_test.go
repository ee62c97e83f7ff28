package fault

import (
	"math/rand/v2"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
)

// slots is a sink of four places of one byte each; a datagram's immediate is its
// place and its payload.
type slots struct {
	mem  []byte
	next int
}

func (s *slots) Expect(to [][]byte) int {
	n := 0
	for ; n < len(to) && s.next+n < len(s.mem); n++ {
		to[n] = s.mem[s.next+n:][:1]
	}
	return n
}

func (s *slots) Arrived(h []fabric.Header) int {
	for i := range h {
		if int(h[i].Imm) != s.next+i {
			return i
		}
	}
	return len(h)
}

func (s *slots) Chunk(h fabric.Header, payload []byte) { s.mem[h.Imm] = payload[0] }
func (s *slots) Idle()                                 {}

// Datagrams that the sink did not want where they are stay in its slots until the
// receiver has moved them: nothing that was held may be placed there before.
func TestHeldIsNotPlacedUnderOthers(t *testing.T) {
	s := &slots{mem: make([]byte, 4)}
	r := &receiver{sink: s, rng: rand.New(rand.NewPCG(1, 2))}
	r.held = []datagram{{header: fabric.Header{Imm: 1}, payload: []byte{1}, places: 1}}
	slot := make([][]byte, 2)
	if r.Expect(slot) != 2 {
		t.Fatal("no slots")
	}
	// Datagrams 0 and 3 come where 0 and 1 were expected.
	slot[0][0], slot[1][0] = 0, 3
	if n := r.Arrived([]fabric.Header{{Imm: 0}, {Imm: 3}}); n != 1 {
		t.Fatalf("%d are where they belong", n)
	}
	moved := slot[1][0]
	r.Chunk(fabric.Header{Imm: 3}, []byte{moved})
	r.Idle()
	for i, b := range s.mem {
		if i != 2 && int(b) != i {
			t.Errorf("place %d holds %d", i, b)
		}
	}
}

// What was held is not forgotten either when everything else is in its place.
func TestHeldIsReleased(t *testing.T) {
	s := &slots{mem: make([]byte, 4)}
	r := &receiver{sink: s, rng: rand.New(rand.NewPCG(1, 2))}
	r.held = []datagram{{header: fabric.Header{Imm: 3}, payload: []byte{3}, places: 1}}
	slot := make([][]byte, 1)
	r.Expect(slot)
	r.Arrived([]fabric.Header{{Imm: 0}})
	r.Expect(slot)
	if s.mem[3] != 3 || len(r.held) > 0 {
		t.Errorf("%d are held still", len(r.held))
	}
}

func TestParse(t *testing.T) {
	for _, s := range []string{"", "drop=1%,dup=1%,reorder=5%,seed=7", "drop=100%", "drop=30%,dup=30%,reorder=40%"} {
		if _, err := Parse(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{"drop", "lose=1%", "drop=101%", "drop=-1%", "seed=x", "drop=60%,dup=60%"} {
		if _, err := Parse(s); err == nil {
			t.Errorf("%q: no error", s)
		}
	}
}
