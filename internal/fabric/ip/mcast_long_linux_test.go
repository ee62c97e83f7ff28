package ip

import (
	"testing"

	"github.com/allcast/allcast/internal/wire"
)

// Chunks of several packets arrive one by one, even if several of them would fit a super-packet.
func TestLongChunk(t *testing.T) {
	for _, chunk := range []int{MaxChunk + 1, 20_000, 2*MaxChunk + wire.HeaderSize, 60_000, MaxLong} {
		cfg := mcastLoopback(t, 1, false)
		cfg.Chunk, cfg.Packet = chunk, MaxChunk
		a, b := mcastVariants[0].open(t, cfg), mcastVariants[0].open(t, cfg)
		caps := a.Capabilities()
		const chunks = 9
		data := mcastData(chunk, chunks)
		s := newMcastSink(chunk, chunks)
		mcastSend(t, a.Sender(0), data, chunk, caps.Batch, mcastRange(0, chunks)...)
		mcastUntil(t, b.Receiver(0), s, chunks)
		mcastSame(t, s.buf, data)
	}
}

// A receiver of long chunks also receives merged short chunks, which other ranks sent.
func TestLongReceivesShort(t *testing.T) {
	cfg := mcastLoopback(t, 1, false)
	cfg.Chunk = 1000
	a := mcastVariants[0].open(t, cfg)
	cfg.Chunk, cfg.Packet = 20_000, MaxChunk
	b := mcastVariants[0].open(t, cfg)
	if a.Capabilities().Batch == 1 {
		t.Skip("no super-packets here")
	}
	data := mcastData(1000, 20)
	s := newMcastSink(1000, 20)
	mcastSend(t, a.Sender(0), data, 1000, a.Capabilities().Batch, mcastRange(0, 20)...)
	mcastUntil(t, b.Receiver(0), s, 20)
	mcastSame(t, s.buf, data)
}

// A chunk never ends with a full packet: GRO would merge the next chunk with it.
func TestLongCut(t *testing.T) {
	cfg := mcastLoopback(t, 1, false)
	cfg.Packet = MaxChunk
	for cfg.Chunk = MaxChunk + 1; cfg.Chunk <= MaxLong; cfg.Chunk++ {
		p, err := newMcastPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		size := p.head + p.Chunk
		if p.batch() != 1 || size%p.cut == 0 || p.packets()*p.cut < size || (p.packets()-1)*p.cut > size {
			t.Fatalf("a chunk of %d bytes: %d packets of %d, %d at once", p.Chunk, p.packets(), p.cut, p.batch())
		}
	}
}
