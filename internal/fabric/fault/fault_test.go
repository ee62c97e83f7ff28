package fault

import (
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/allcast/allcast/internal/wire"
)

// slots is a sink of four places of one byte each. A datagram's immediate is its place and its payload.
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

func (s *slots) Arrived(h []wire.Header) int {
	for i := range h {
		if int(h[i].Imm) != s.next+i {
			return i
		}
	}
	return len(h)
}

func (s *slots) Chunk(h wire.Header, payload []byte) { s.mem[h.Imm] = payload[0] }
func (s *slots) Idle()                               {}

// Datagrams that the sink does not accept in place stay in its slots until the receiver has moved them.
// Held datagrams must not be placed there before.
func TestHeldIsNotPlacedUnderOthers(t *testing.T) {
	s := &slots{mem: make([]byte, 4)}
	r := &receiver{sink: s, rng: rand.New(rand.NewPCG(1, 2))}
	r.held = []datagram{{header: wire.Header{Imm: 1}, payload: []byte{1}, places: 1}}
	slot := make([][]byte, 2)
	if r.Expect(slot) != 2 {
		t.Fatal("no slots")
	}
	// Datagrams 0 and 3 arrive in the slots of 0 and 1.
	slot[0][0], slot[1][0] = 0, 3
	if n := r.Arrived([]wire.Header{{Imm: 0}, {Imm: 3}}); n != 1 {
		t.Fatalf("%d datagrams are in place", n)
	}
	moved := slot[1][0]
	r.Chunk(wire.Header{Imm: 3}, []byte{moved})
	r.Idle()
	for i, b := range s.mem {
		if i != 2 && int(b) != i {
			t.Errorf("place %d holds %d", i, b)
		}
	}
}

// Held datagrams are released even if all others arrive in place.
func TestHeldIsReleased(t *testing.T) {
	s := &slots{mem: make([]byte, 4)}
	r := &receiver{sink: s, rng: rand.New(rand.NewPCG(1, 2))}
	r.held = []datagram{{header: wire.Header{Imm: 3}, payload: []byte{3}, places: 1}}
	slot := make([][]byte, 1)
	r.Expect(slot)
	r.Arrived([]wire.Header{{Imm: 0}})
	r.Expect(slot)
	if s.mem[3] != 3 || len(r.held) > 0 {
		t.Errorf("%d datagrams are still held", len(r.held))
	}
}

func TestParse(t *testing.T) {
	for _, s := range []string{
		"", "drop=1%,dup=1%,reorder=5%,seed=7", "drop=100%", "drop=30%,dup=30%,reorder=40%", "corrupt=1%",
	} {
		if _, err := Parse(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{
		"drop", "lose=1%", "drop=101%", "drop=-1%", "seed=x", "drop=60%,dup=60%", "drop=60%,corrupt=60%", "corrupt=x",
	} {
		if _, err := Parse(s); err == nil {
			t.Errorf("%q: no error", s)
		}
	}
}

// A damaged datagram differs by one bit, in place or not. Memory of the receiver does not change.
func TestDamage(t *testing.T) {
	s := &slots{mem: make([]byte, 4)}
	r := &receiver{sink: s, spec: Spec{Corrupt: 1}, rng: rand.New(rand.NewPCG(1, 2))}
	slot := make([][]byte, 2)
	r.Expect(slot)
	slot[0][0], slot[1][0] = 0x0f, 0xf0
	if n := r.Arrived([]wire.Header{{Imm: 0}, {Imm: 1}}); n != 2 {
		t.Fatalf("%d datagrams are in place", n)
	}
	for i, was := range []byte{0x0f, 0xf0} {
		if n := bits.OnesCount8(s.mem[i] ^ was); n != 1 {
			t.Errorf("place %d: %d bits differ", i, n)
		}
	}
	heads := 0
	for range 200 {
		h, payload := wire.Header{Token: 7, Imm: 1}, []byte{1, 2, 3}
		k := &keeper{}
		r.sink = k
		r.Chunk(h, payload)
		if payload[0] != 1 || payload[1] != 2 || payload[2] != 3 {
			t.Fatal("the payload's memory was changed")
		}
		n := 0
		for i := range payload {
			n += bits.OnesCount8(payload[i] ^ k.payload[i])
		}
		if k.h != h {
			heads++
			n++
		}
		if n != 1 {
			t.Fatalf("%d differences", n)
		}
	}
	if heads == 0 || heads == 200 {
		t.Errorf("%d of 200 headers were damaged", heads)
	}
}

type keeper struct {
	slots
	h       wire.Header
	payload []byte
}

func (k *keeper) Chunk(h wire.Header, payload []byte) {
	k.h, k.payload = h, append([]byte(nil), payload...)
}
