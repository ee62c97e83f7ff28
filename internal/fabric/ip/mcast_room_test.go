package ip

import (
	"testing"

	"github.com/allcast/allcast/internal/fabric"
)

// mcastDrain drains the queue until n chunks have arrived, and fails if some are lost.
func mcastDrain(t *testing.T, r fabric.Receiver, s *mcastSink, n int) {
	t.Helper()
	for s.copied < n {
		if st := r.Stats(); st.Dropped > 0 {
			t.Fatalf("%d chunks received, then: %+v", s.copied, st)
		}
		r.Wake() // lost chunks must not block Receive
		if err := r.Receive(s); err != nil {
			t.Fatal(err)
		}
	}
}

// Room chunks fit a queue that is not read, in batches of any size. After a part was read, as many
// others fit.
func TestRoom(t *testing.T) {
	mcastEach(t, func(t *testing.T, v mcastVariant) {
		t.Helper()
		for _, buffer := range []int{0, 300_000, 1 << 20} {
			for _, full := range []bool{true, false} {
				cfg := mcastLoopback(t, 1, v.v6)
				cfg.ReceiveBuffer = buffer
				a, b := v.open(t, cfg), v.open(t, cfg)
				caps := b.Capabilities()
				batch := 1
				if full {
					batch = a.Capabilities().Batch
				}
				data := mcastData(caps.Chunk, 1)
				sink := newMcastSink(caps.Chunk, 1)
				r := b.Receiver(0)
				sent := caps.Room
				mcastSend(t, a.Sender(0), data, caps.Chunk, batch, make([]uint32, caps.Room)...)
				for range 8 {
					mcastDrain(t, r, sink, sink.copied+max(1, caps.Room/3))
					more := sink.copied + caps.Room - sent
					mcastSend(t, a.Sender(0), data, caps.Chunk, batch, make([]uint32, more)...)
					sent += more
				}
				mcastDrain(t, r, sink, sent)
				if st := r.Stats(); st.Dropped > 0 || st.Datagrams != uint64(sent) {
					t.Errorf("buffer %d, batches of %d: sent %d, %+v", buffer, batch, sent, st)
				}
			}
		}
	})
}

// Only datagrams that do not fit the queue are counted as dropped.
func TestDropped(t *testing.T) {
	for _, v := range []mcastVariant{{name: "v4"}, {name: "v4-plain", plain: true}} {
		t.Run(v.name, func(t *testing.T) {
			cfg := mcastLoopback(t, 1, false)
			cfg.ReceiveBuffer = 200_000
			a, b := v.open(t, cfg), v.open(t, cfg)
			caps := a.Capabilities()
			if b.Features().Sockets != mcastLinux {
				t.Skip("plain sockets do not report dropped datagrams")
			}
			data := mcastData(caps.Chunk, 1)
			packets := 0
			for range 200 {
				mcastSend(t, a.Sender(0), data, caps.Chunk, caps.Batch, make([]uint32, caps.Batch)...)
				mcastSend(t, b.Sender(0), data, caps.Chunk, caps.Batch, make([]uint32, caps.Batch)...)
				packets++
			}
			// Every packet is counted once, as received or as dropped.
			sink := newMcastSink(caps.Chunk, 1)
			r := b.Receiver(0)
			for {
				st := r.Stats()
				if int(st.Calls+st.Dropped) > packets {
					t.Fatalf("%d packets sent: %+v", packets, st)
				}
				if int(st.Calls+st.Dropped) == packets {
					if st.Dropped == 0 || st.Datagrams != st.Calls*uint64(caps.Batch) {
						t.Fatalf("%d packets sent: %+v", packets, st)
					}
					break
				}
				r.Wake()
				if err := r.Receive(sink); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
