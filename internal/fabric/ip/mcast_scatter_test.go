package ip

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/allcast/allcast/internal/wire"
)

// mcastGuesser gives slots of any length, and accepts any number of datagrams in place.
type mcastGuesser struct {
	slots [][]byte
	takes int
	got   [][]byte // whole datagrams, in order
}

func (g *mcastGuesser) Expect(slots [][]byte) int { return copy(slots, g.slots) }

func (g *mcastGuesser) Arrived(hs []wire.Header) int {
	n := min(g.takes, len(hs)) // -1 also means none
	for i, h := range hs[:max(0, n)] {
		g.add(h, g.slots[i])
	}
	return n
}

func (g *mcastGuesser) Chunk(h wire.Header, payload []byte) {
	g.add(h, payload)
	// The sink may put the payload anywhere, even where other datagrams were received.
	for _, s := range g.slots {
		clear(s)
	}
}

func (g *mcastGuesser) Idle() {}

func (g *mcastGuesser) add(h wire.Header, payload []byte) {
	d := make([]byte, wire.HeaderSize+len(payload))
	h.Put(d)
	copy(d[wire.HeaderSize:], payload)
	g.got = append(g.got, d)
}

// The sink receives every datagram once, in order and intact, whatever was sent and whatever the sink
// expected.
func TestScatterAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 5
		seg := rapid.IntRange(0, 60).Draw(t, "segment")
		n := rapid.IntRange(0, 6*60).Draw(t, "bytes")
		g := &mcastGuesser{takes: rapid.IntRange(-1, most+1).Draw(t, "takes")}
		for range rapid.IntRange(0, most).Draw(t, "slots") {
			size := rapid.OneOf(rapid.Just(max(0, seg-wire.HeaderSize)), rapid.IntRange(0, 60)).Draw(t, "slot")
			g.slots = append(g.slots, make([]byte, size))
		}
		stream := make([]byte, n)
		for i := range stream {
			stream[i] = byte(i + 1)
		}
		v := newMcastScatter(wire.HeaderSize, most) // longer headers are TestMulticastSums's
		v.expect(g)
		// As the kernel does.
		rest := stream
		for i, s := range v.slots {
			rest = rest[copy(v.head(i), rest):]
			rest = rest[copy(s, rest):]
		}
		copy(v.overflow(), rest)

		good, malformed := v.deliver(g, n, seg)
		v.forget()
		var want [][]byte
		short := 0
		if n == 0 {
			short = 1
		}
		for rest := stream; len(rest) > 0; {
			size := len(rest)
			if seg > 0 {
				size = min(seg, size)
			}
			if size < wire.HeaderSize {
				short++
			} else {
				want = append(want, rest[:size])
			}
			rest = rest[size:]
		}
		if good != len(want) || malformed != short || len(g.got) != len(want) {
			t.Fatalf("%d good, %d malformed, %d handed over; want %d and %d", good, malformed, len(g.got), len(want), short)
		}
		for i := range want {
			if !bytes.Equal(g.got[i], want[i]) {
				t.Fatalf("datagram %d of %d: %v, not %v", i, len(want), g.got[i], want[i])
			}
		}
	})
}
