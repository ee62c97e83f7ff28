package fabrictest

import (
	"slices"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

const token = 0x1122334455667788

// sink collects chunks by PSN. It expects the PSNs of guess, in this order.
type sink struct {
	chunk   int
	buf     []byte
	guess   []uint32
	heads   map[uint32]wire.Header
	count   map[uint32]int
	foreign int // datagrams with another token
	got     int
	idle    int
}

func newSink(chunk, chunks int) *sink {
	return &sink{
		chunk: chunk, buf: make([]byte, chunk*chunks), heads: map[uint32]wire.Header{}, count: map[uint32]int{},
	}
}

func (s *sink) slot(psn uint32) []byte { return s.buf[int(psn)*s.chunk:][:s.chunk] }

func (s *sink) take(h wire.Header) {
	s.heads[h.Imm] = h
	s.count[h.Imm]++
	s.got++
}

func (s *sink) Expect(slots [][]byte) int {
	n := min(len(slots), len(s.guess))
	for i := range n {
		slots[i] = s.slot(s.guess[i])
	}
	return n
}

func (s *sink) Arrived(hs []wire.Header) int {
	n := 0
	for n < len(hs) && hs[n].Token == token && hs[n].Imm == s.guess[n] {
		s.take(hs[n])
		n++
	}
	s.guess = s.guess[n:]
	return n
}

func (s *sink) Chunk(h wire.Header, payload []byte) {
	if h.Token != token {
		s.foreign++
		return
	}
	s.take(h)
	copy(s.slot(h.Imm), payload)
	// A chunk that is in place must not be a slot again.
	s.guess = slices.DeleteFunc(s.guess, func(psn uint32) bool { return psn == h.Imm })
}

func (s *sink) Idle() { s.idle++ }

// send multicasts chunks in batches of at most limit.
func send(t *testing.T, tx fabric.Sender, comm uint32, data []byte, chunk, limit int, psns []uint32) {
	t.Helper()
	for len(psns) > 0 {
		var b fabric.Batch
		for _, psn := range psns[:min(limit, len(psns))] {
			off := int(psn) * chunk
			h := wire.Header{Token: token, Comm: comm, Imm: psn}
			payload := data[off:min(off+chunk, len(data))]
			h.Sum = h.Checksum(payload)
			b.Headers, b.Payloads = append(b.Headers, h), append(b.Payloads, payload)
		}
		psns = psns[len(b.Headers):]
		before := tx.Completed()
		if err := fabric.SendAll(tx, &b, waitLimit); err != nil {
			t.Fatal(err)
		}
		if n := tx.Completed() - before; n != uint64(len(b.Headers)) {
			t.Errorf("%d datagrams have completed, want %d", n, len(b.Headers))
		}
	}
}

// receive receives until ok. The test binary's timeout ends it if nothing comes.
func receive(t *testing.T, rx fabric.Receiver, s *sink, ok func() bool) {
	t.Helper()
	late := time.AfterFunc(waitLimit, rx.Wake)
	defer late.Stop()
	for begin := time.Now(); !ok(); {
		if err := rx.Receive(s); err != nil {
			t.Fatal(err)
		}
		if time.Since(begin) > waitLimit {
			t.Fatalf("only %d chunks and %d foreign datagrams arrived", s.got, s.foreign)
		}
	}
}

func psns(n int) []uint32 {
	list := make([]uint32, n)
	for i := range list {
		list[i] = uint32(i)
	}
	return list
}

// TestMulticast runs the tests of the unreliable side.
func TestMulticast(t *testing.T, n Network) {
	t.Helper()
	n.run(t, []test{
		{"capabilities", testMulticastCapabilities},
		{"delivery", testDelivery},
		{"batches", testBatches},
		{"busy", testBusy},
		{"foreign", testForeign},
		{"own datagrams", testOwn},
		{"wake", testWake},
		{"wake with traffic", testWakeWithTraffic},
		{"pending", testPending},
		{"poller", testPoller},
		{"groups", testGroups},
		{"groups of several communicators", testSeveralGroups},
		{"groups after close", testGroupsAfterClose},
		{"close", testMulticastClose},
	})
}
