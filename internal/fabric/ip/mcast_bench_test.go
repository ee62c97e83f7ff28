package ip

import (
	"testing"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

func mcastBatchOf(data []byte, chunk, n int) *fabric.Batch {
	b := &fabric.Batch{}
	for i := range n {
		b.Headers = append(b.Headers, wire.Header{Token: mcastToken, Imm: uint32(i)})
		b.Payloads = append(b.Payloads, data[i*chunk:][:chunk])
	}
	return b
}

// mcastCount is a sink that accepts all datagrams where they are.
type mcastCount struct {
	slots [][]byte
	n     int
}

func (c *mcastCount) Expect(slots [][]byte) int    { return copy(slots, c.slots) }
func (c *mcastCount) Arrived(hs []wire.Header) int { c.n += len(hs); return len(hs) }
func (c *mcastCount) Chunk(wire.Header, []byte)    { c.n++ }
func (c *mcastCount) Idle()                        {}

func TestMulticastAllocates(t *testing.T) {
	mcastEach(t, func(t *testing.T, v mcastVariant) {
		t.Helper()
		x, y := mcastPair(t, v)
		caps := x.Capabilities()
		batch := mcastBatchOf(mcastData(caps.Chunk, caps.Batch), caps.Chunk, caps.Batch)
		sink := &mcastCount{slots: batch.Payloads}
		s, r := x.Sender(0), y.Receiver(0)
		rounds := 0
		n := testing.AllocsPerRun(100, func() {
			if err := fabric.SendAll(s, batch, time.Minute); err != nil {
				t.Fatal(err)
			}
			for rounds++; sink.n < rounds*caps.Batch; {
				if err := r.Receive(sink); err != nil {
					t.Fatal(err)
				}
			}
		})
		if n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

func mcastEachBench(b *testing.B, f func(b *testing.B, x, y *Multicast)) {
	b.Helper()
	for _, v := range mcastVariants[:3] {
		b.Run(v.name, func(b *testing.B) {
			x, y := mcastPair(b, v)
			b.ReportAllocs()
			f(b, x, y)
		})
	}
}

// No other socket has joined, so this is the cost of the sender alone.
func BenchmarkSend(b *testing.B) {
	mcastEachBench(b, func(b *testing.B, x, y *Multicast) {
		b.Helper()
		if err := y.Close(); err != nil {
			b.Fatal(err)
		}
		caps := x.Capabilities()
		batch := mcastBatchOf(mcastData(caps.Chunk, caps.Batch), caps.Chunk, caps.Batch)
		b.SetBytes(int64(caps.Chunk * caps.Batch))
		s := x.Sender(0)
		for b.Loop() {
			if err := fabric.SendAll(s, batch, time.Minute); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// One goroutine alternately sends and receives, so this is the cost of both together.
func BenchmarkSendReceive(b *testing.B) {
	mcastEachBench(b, func(b *testing.B, x, y *Multicast) {
		b.Helper()
		caps := x.Capabilities()
		batch := mcastBatchOf(mcastData(caps.Chunk, caps.Batch), caps.Chunk, caps.Batch)
		sink := &mcastCount{slots: batch.Payloads}
		b.SetBytes(int64(caps.Chunk * caps.Batch))
		s, r := x.Sender(0), y.Receiver(0)
		n := 0
		for b.Loop() {
			if err := fabric.SendAll(s, batch, time.Minute); err != nil {
				b.Fatal(err)
			}
			for n += caps.Batch; sink.n < n; {
				if err := r.Receive(sink); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

// The queue is filled while the timer is stopped.
func BenchmarkReceive(b *testing.B) {
	mcastEachBench(b, func(b *testing.B, x, y *Multicast) {
		b.Helper()
		caps := x.Capabilities()
		batch := mcastBatchOf(mcastData(caps.Chunk, caps.Batch), caps.Chunk, caps.Batch)
		sink := &mcastCount{slots: batch.Payloads}
		b.SetBytes(int64(caps.Chunk * caps.Batch))
		s, r := x.Sender(0), y.Receiver(0)
		queued := 0
		b.ResetTimer()
		for i := range b.N {
			if queued == sink.n {
				b.StopTimer()
				for range min(caps.Room/caps.Batch, b.N-i) {
					if err := fabric.SendAll(s, batch, time.Minute); err != nil {
						b.Fatal(err)
					}
					queued += caps.Batch
				}
				b.StartTimer()
			}
			if sink.n >= (i+1)*caps.Batch {
				continue // one Receive drains the queue
			}
			if err := r.Receive(sink); err != nil {
				b.Fatal(err)
			}
		}
	})
}
