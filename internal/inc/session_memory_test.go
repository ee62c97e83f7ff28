package inc

import (
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/allcast/allcast/internal/reduce"
)

// Memory never exceeds MaxMemory, which the worst order of arrival nearly reaches.
func TestSessionMemory(t *testing.T) {
	if unsafe.Sizeof(slot{}) != slotSize || unsafe.Sizeof(channel{})+16 != channelSize ||
		unsafe.Sizeof(buffer{}) != bufferOverhead {
		t.Errorf("sizes: %d, %d, %d", unsafe.Sizeof(slot{}), unsafe.Sizeof(channel{}), unsafe.Sizeof(buffer{}))
	}
	tree := mustTree(t, "t:1=0-8", 9)
	s := testSession(tree, 0, 16, 64, 3)
	limit := s.cfg.MaxMemory()
	payload := make([]byte, 64)
	for number := range uint32(3) {
		for place := range uint32(40) {
			for comm := range uint32(5) {
				for child := 8; child >= 0; child-- {
					if owner := int(place % 9); owner != child {
						s.Contribute(contribution(comm, number, place, owner, child, 0), payload)
					}
					if m := s.Memory(); m > limit {
						t.Fatalf("%d bytes, the limit is %d", m, limit)
					}
				}
			}
		}
	}
	// The first child is missing everywhere.
	for comm := range s.comms {
		for place := range uint32(16) {
			for child := 1; child < 8; child++ {
				s.Contribute(contribution(comm, 9, place, 8, child, 0), payload)
			}
		}
	}
	if m := s.Memory(); m > limit || m < limit*3/4 {
		t.Errorf("%d bytes, the limit is %d", m, limit)
	}
	rapid.Check(t, func(t *rapid.T) {
		cfg := SessionConfig{
			Tree: tree, Window: rapid.Uint32Range(0, 5).Draw(t, "window"), Chunk: 8, Token: testToken, Add: reduceInto,
			Comms: rapid.IntRange(0, 3).Draw(t, "comms"),
		}
		s := NewSession(cfg)
		for range rapid.IntRange(0, 300).Draw(t, "datagrams") {
			owner := rapid.IntRange(0, 8).Draw(t, "owner")
			h := contribution(rapid.Uint32Range(0, 4).Draw(t, "comm"), rapid.Uint32Range(0, 2).Draw(t, "number"),
				rapid.Uint32Range(0, 9).Draw(t, "place"), owner, rapid.IntRange(0, 9).Draw(t, "child"), 0)
			s.Contribute(h, payload[:4*rapid.IntRange(0, 3).Draw(t, "length")])
			if m := s.Memory(); m > cfg.MaxMemory() {
				t.Fatalf("%d bytes, the limit is %d", m, cfg.MaxMemory())
			}
		}
	})
}

// A steady stream of contributions, in any order, allocates nothing.
func TestSessionDoesNotAllocate(t *testing.T) {
	s, payload := testSession(mustTree(t, "t:1=0-3", 4), 0, 8, 64, 2), make([]byte, 64)
	place := uint32(0)
	round := func() {
		for range 32 {
			for _, child := range []int{2, 0, 1, 1} {
				h := Header{
					Kind: Contribution, Type: uint8(reduce.F32), Reduce: uint8(reduce.Sum), Token: testToken(place%3, place/8),
					Comm: place % 3, Number: place / 8, Place: place % 8, Owner: 3, Child: uint16(child),
				}
				s.Contribute(&h, payload)
			}
			place++
		}
	}
	round()
	if n := testing.AllocsPerRun(100, round); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if s.Stats().Sums < 3000 {
		t.Errorf("%+v", s.Stats())
	}
}

func BenchmarkSessionContribute(b *testing.B) {
	tree, err := ParseTree("t:1=0-7", 8)
	if err != nil {
		b.Fatal(err)
	}
	s, payload := testSession(tree, 0, 256, 1408, 2), make([]byte, 1408)
	h := contribution(1, 1, 0, 0, 0, 0)
	h.Type = uint8(reduce.F32)
	b.ReportAllocs()
	b.SetBytes(1408)
	for i := range b.N {
		h.Child = uint16(i%7) + 1
		h.Place = uint32(i / 7)
		s.Contribute(h, payload)
	}
}
