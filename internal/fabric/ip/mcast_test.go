package ip

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/testenv"
	"github.com/allcast/allcast/internal/wire"
)

// Ranks with and without accelerations receive each other's datagrams.
func TestMulticastMixed(t *testing.T) {
	cfg := mcastLoopback(t, 1, false)
	var all []*Multicast
	for _, v := range mcastVariants[:3] {
		all = append(all, v.open(t, cfg))
	}
	const chunks = 15
	for i, from := range all {
		caps := from.Capabilities()
		data := mcastData(caps.Chunk, chunks)
		mcastSend(t, from.Sender(0), data, caps.Chunk, caps.Batch, mcastRange(0, chunks)...)
		for j, to := range all {
			if i == j {
				continue
			}
			sink := newMcastSink(caps.Chunk, chunks)
			sink.guess = mcastRange(0, chunks)
			mcastUntil(t, to.Receiver(0), sink, chunks)
			mcastSame(t, sink.buf, data)
		}
	}
}

func TestMulticastScatter(t *testing.T) {
	cases := []struct {
		name        string
		send, guess []uint32
		direct      int // chunks in place, of 7 in one super-packet
		directPlain int // chunks in place, of 7 that arrive one by one, where a wrong guess is corrected
		tail        int // bytes missing from the last chunk
	}{
		{"right", mcastRange(0, 7), mcastRange(0, 7), 7, 7, 0},
		{"none", mcastRange(0, 7), nil, 0, 0, 0},
		{"less", mcastRange(0, 7), mcastRange(0, 3), 3, 3, 0},
		{"wrong", mcastRange(0, 7), mcastRange(7, 14), 0, 0, 0},
		{"permuted", []uint32{1, 2, 3, 4, 5, 6, 0}, mcastRange(0, 7), 0, 1, 0},
		{"swapped", []uint32{0, 1, 3, 2, 4, 5, 6}, mcastRange(0, 7), 2, 6, 0},
		{"tail", mcastRange(0, 7), mcastRange(0, 7), 6, 6, 100},
	}
	for _, v := range mcastVariants[:2] {
		t.Run(v.name, func(t *testing.T) {
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					a, b := mcastPair(t, v)
					chunk := a.Capabilities().Chunk
					data := mcastData(chunk, 14)
					if c.tail > 0 {
						data = data[:7*chunk-c.tail]
					}
					sink := newMcastSink(chunk, 14)
					sink.guess = slices.Clone(c.guess)
					mcastSend(t, a.Sender(0), data, chunk, a.Capabilities().Batch, c.send...)
					mcastUntil(t, b.Receiver(0), sink, 7)
					size := min(len(data), 7*chunk)
					mcastSame(t, sink.buf[:size], data[:size])
					want := c.direct
					if a.Capabilities().Batch == 1 {
						want = c.directPlain
					}
					if sink.direct != want {
						t.Errorf("%d chunks arrived in place, want %d", sink.direct, want)
					}
				})
			}
		})
	}
}

// A rank's own datagrams do not reach it, and do not count as lost.
func TestMulticastOwn(t *testing.T) {
	mcastEach(t, func(t *testing.T, v mcastVariant) {
		t.Helper()
		a, b := mcastPair(t, v)
		caps := a.Capabilities()
		data := mcastData(caps.Chunk, 50)
		for range 4 {
			mcastSend(t, a.Sender(0), data, caps.Chunk, caps.Batch, mcastRange(1, 50)...)
		}
		mcastSend(t, b.Sender(0), data, caps.Chunk, 1, 0)
		sink := newMcastSink(caps.Chunk, 50)
		mcastUntil(t, a.Receiver(0), sink, 1)
		st := a.Receiver(0).Stats()
		if st.Datagrams != 1 || st.Dropped != 0 || len(sink.got) != 1 || sink.got[0] != 1 {
			t.Errorf("got %v, stats %+v", sink.got, st)
		}
		if f := a.Features(); f.Filter && st.Calls != 1 {
			t.Errorf("%d calls for one datagram", st.Calls)
		}
	})
}

func TestMulticastMalformed(t *testing.T) {
	cfg := mcastLoopback(t, 1, false)
	for _, v := range mcastVariants[:3] {
		t.Run(v.name, func(t *testing.T) {
			cfg.Groups = mcastNextGroups(1, false)
			m := v.open(t, cfg)
			p, err := newMcastPlan(cfg)
			if err != nil {
				t.Fatal(err)
			}
			stranger, err := newPortableSender(p, cfg.Groups[0])
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = stranger.Close() })
			for n := range wire.HeaderSize + 1 {
				if _, err := stranger.conn.WriteTo(make([]byte, n), net.UDPAddrFromAddrPort(cfg.Groups[0])); err != nil {
					t.Fatal(err)
				}
			}
			sink := newMcastSink(p.Chunk, 1)
			sink.guess = []uint32{0}
			for sink.foreign == 0 {
				if err := m.Receiver(0).Receive(sink); err != nil {
					t.Fatal(err)
				}
			}
			if st := m.Receiver(0).Stats(); st.Malformed != wire.HeaderSize || st.Datagrams != 1 {
				t.Errorf("stats %+v", st)
			}
		})
	}
}

// Opening and closing starts no goroutine, so none is left.
func TestMulticastLeavesNothing(t *testing.T) {
	defer testenv.NoLeaks(t)
	for range 5 {
		for _, v := range mcastVariants[:3] {
			m, err := v.try(mcastLoopback(t, 3, false))
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
			if err := m.Close(); err != nil {
				t.Fatalf("a second Close: %v", err)
			}
		}
	}
}

// sumSink keeps the sums of all datagrams, in place or not.
type sumSink struct {
	*mcastSink
	sums map[uint32]uint32
}

func (s sumSink) Arrived(hs []wire.Header) int {
	for _, h := range hs {
		s.sums[h.Imm] = h.Sum
	}
	return s.mcastSink.Arrived(hs)
}

func (s sumSink) Chunk(h wire.Header, payload []byte) {
	s.sums[h.Imm] = h.Sum
	s.mcastSink.Chunk(h, payload)
}

// Sums arrive with their datagrams, in place or not. Capabilities includes their size.
func TestMulticastSums(t *testing.T) {
	cfg := mcastLoopback(t, 1, false)
	cfg.Chunk = 1000
	plain := mcastVariants[0].open(t, cfg).Capabilities()
	for _, v := range mcastVariants {
		if !v.sums || v.v6 {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			cfg.Groups = mcastNextGroups(1, false)
			a, b := v.open(t, cfg), v.open(t, cfg)
			if c := a.Capabilities(); c.Overhead != plain.Overhead+wire.SumSize || c.Header != plain.Header+wire.SumSize {
				t.Errorf("%+v, and %+v without", c, plain)
			}
			const chunks = 6
			data := mcastData(1000, chunks)
			s := sumSink{newMcastSink(1000, chunks), map[uint32]uint32{}}
			s.guess = mcastRange(0, 3)
			for psn := range uint32(chunks) {
				h := wire.Header{Token: mcastToken, Comm: 3, Imm: psn}
				payload := data[psn*1000:][:1000]
				h.Sum = h.Checksum(payload)
				batch := &fabric.Batch{Headers: []wire.Header{h}, Payloads: [][]byte{payload}}
				if err := fabric.SendAll(a.Sender(0), batch, time.Minute); err != nil {
					t.Fatal(err)
				}
			}
			for s.direct+s.copied < chunks {
				if err := b.Receiver(0).Receive(s); err != nil {
					t.Fatal(err)
				}
			}
			mcastSame(t, s.buf, data)
			for psn := range uint32(chunks) {
				h := wire.Header{Token: mcastToken, Comm: 3, Imm: psn}
				if s.sums[psn] != h.Checksum(s.slot(psn)) {
					t.Errorf("chunk %d: the sum is %#x", psn, s.sums[psn])
				}
			}
		})
	}
	// The largest chunk is smaller by the sum.
	cfg.Chunk = 0
	c := mcastVariants[0].open(t, cfg).Capabilities().Chunk
	cfg.Sums = true
	p, err := newMcastPlan(cfg)
	if err != nil || p.Chunk != c-wire.SumSize {
		t.Errorf("%d, and %d without: %v", p.Chunk, c, err)
	}
}
