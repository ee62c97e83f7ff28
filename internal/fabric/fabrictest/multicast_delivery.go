package fabrictest

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

func testMulticastCapabilities(t *testing.T, n Network) {
	t.Helper()
	for _, m := range n.Multicast(t, 2) {
		c := m.Capabilities()
		if c.Chunk < 1 || c.Batch < 1 || c.Room < c.Batch || c.Overhead < c.Header || c.Header < wire.HeaderSize {
			t.Errorf("capabilities %+v", c)
		}
		if m.Subgroups() != 2 {
			t.Errorf("%d subgroups, want 2", m.Subgroups())
		}
		if m.Streams() < 2 || m.Streams()%2 != 0 {
			t.Errorf("%d streams of 2 subgroups", m.Streams())
		}
	}
}

// Chunks arrive at all other ranks with their headers, whatever the receiver expects, and not at the
// sender or on another stream.
func testDelivery(t *testing.T, n Network) {
	t.Helper()
	const chunks = 20
	all := n.Multicast(t, 3)
	c := all[0].Capabilities()
	data := fill(chunks*c.Chunk-c.Chunk/2, 1) // the last chunk is shorter
	swapped := psns(chunks)
	swapped[3], swapped[4] = swapped[4], swapped[3]
	for name, guess := range map[string][]uint32{
		"right": psns(chunks), "none": nil, "few": psns(3), "swapped": swapped, "wrong": psns(2 * chunks)[chunks:],
	} {
		for stream := range all[0].Streams() {
			send(t, all[0].Sender(stream), uint32(stream), data, c.Chunk, c.Batch, psns(chunks))
			for r, m := range all[1:] {
				s := newSink(c.Chunk, 2*chunks)
				s.guess = slices.Clone(guess)
				receive(t, m.Receiver(stream), s, func() bool { return s.got == chunks })
				if !bytes.Equal(s.buf[:len(data)], data) {
					t.Errorf("%s, stream %d: rank %d got other bytes", name, stream, r+1)
				}
				for psn := range uint32(chunks) {
					end := min(int(psn+1)*c.Chunk, len(data))
					want := wire.Header{Token: token, Comm: uint32(stream), Imm: psn}
					if c.Header >= wire.HeaderSize+wire.SumSize {
						want.Sum = want.Checksum(data[int(psn)*c.Chunk : end])
					}
					if s.heads[psn] != want || s.count[psn] != 1 {
						t.Errorf("%s, stream %d: chunk %d came %d times, with %+v", name, stream, psn, s.count[psn], s.heads[psn])
					}
				}
				if s.idle == 0 {
					t.Error("the sink was never idle")
				}
			}
		}
	}
	if st := all[1].Receiver(0).Stats(); st.Datagrams != 5*chunks || st.Dropped != 0 || st.Malformed != 0 ||
		st.Calls == 0 {
		t.Errorf("the receiver counts %+v, want %d datagrams", st, 5*chunks)
	}
}

// Batches that break the rules are refused, and nothing of them is sent. Full batches and empty ones
// are accepted.
func testBatches(t *testing.T, n Network) {
	t.Helper()
	all := n.Multicast(t, 2)
	c := all[0].Capabilities()
	tx := all[0].Sender(0)
	h := make([]wire.Header, 2000)
	for i := range h {
		h[i].Token = token
	}
	bad := map[string]*fabric.Batch{
		"payloads missing": {Headers: h[:1]},
		"too large":        {Headers: h[:1], Payloads: [][]byte{make([]byte, c.Chunk+1)}},
		"too many":         {Headers: h, Payloads: make([][]byte, len(h))},
	}
	if !n.Uneven {
		bad["grows"] = &fabric.Batch{Headers: h[:2], Payloads: [][]byte{make([]byte, 1), make([]byte, 2)}}
		bad["short inside"] = &fabric.Batch{Headers: h[:3], Payloads: [][]byte{make([]byte, 2), nil, make([]byte, 2)}}
	}
	for name, b := range bad {
		if k, err := tx.Send(b); err == nil || errors.Is(err, fabric.ErrBusy) || k != 0 {
			t.Errorf("%s: %d datagrams were sent: %v", name, k, err)
		}
	}
	if k, err := tx.Send(&fabric.Batch{}); k != 0 || err != nil {
		t.Errorf("an empty batch: %d, %v", k, err)
	}
	data := fill(c.Batch*c.Chunk, 7)
	send(t, tx, 1, data, c.Chunk, c.Batch, psns(c.Batch))
	s := newSink(c.Chunk, c.Batch)
	receive(t, all[1].Receiver(0), s, func() bool { return s.got >= c.Batch })
	if s.got != c.Batch || !bytes.Equal(s.buf, data) {
		t.Errorf("%d chunks arrived, want a batch of %d", s.got, c.Batch)
	}
	send(t, tx, 1, nil, c.Chunk, 1, []uint32{0}) // an empty payload
	receive(t, all[1].Receiver(0), s, func() bool { return s.got > c.Batch })
}

// Send never blocks: it takes what fits, and then says ErrBusy. What it took completes, in order.
func testBusy(t *testing.T, n Network) {
	t.Helper()
	m := n.Multicast(t, 1)[0]
	c := m.Capabilities()
	tx := m.Sender(0)
	b := &fabric.Batch{Headers: make([]wire.Header, c.Batch), Payloads: make([][]byte, c.Batch)}
	for i := range b.Payloads {
		b.Payloads[i] = make([]byte, c.Chunk)
	}
	before, taken := tx.Completed(), uint64(0)
	last := before
	for range 200 {
		k, err := tx.Send(b)
		if err == nil && k != c.Batch || err != nil && !errors.Is(err, fabric.ErrBusy) {
			t.Fatalf("%d of %d were sent: %v", k, c.Batch, err)
		}
		taken += uint64(k)
		now := tx.Completed()
		if now < last || now > before+taken {
			t.Fatalf("%d have completed after %d, and %d were taken", now-before, last-before, taken)
		}
		if last = now; err != nil {
			tx.Await(time.Second)
		}
	}
	for begin := time.Now(); tx.Completed() < before+taken; tx.Await(100 * time.Millisecond) {
		if time.Since(begin) > waitLimit {
			t.Fatalf("%d of %d datagrams have completed", tx.Completed()-before, taken)
		}
	}
	tx.Await(time.Millisecond) // returns although nothing happens
}

// Foreign datagrams are counted and dropped; those with a header reach the sink.
func testForeign(t *testing.T, n Network) {
	t.Helper()
	if n.Foreign == nil {
		return // the network cannot carry datagrams without a header
	}
	all := n.Multicast(t, 2)
	n.Foreign(t, all)
	c := all[0].Capabilities()
	send(t, all[0].Sender(0), 1, fill(c.Chunk, 1), c.Chunk, 1, []uint32{0})
	s := newSink(c.Chunk, 1)
	s.guess = []uint32{0}
	receive(t, all[1].Receiver(0), s, func() bool {
		return s.got == 1 && all[1].Receiver(0).Stats().Malformed >= wire.HeaderSize
	})
	if st := all[1].Receiver(0).Stats(); st.Malformed != wire.HeaderSize || st.Datagrams != 1 {
		t.Errorf("the receiver counts %+v, want %d malformed datagrams", st, wire.HeaderSize)
	}
	if !bytes.Equal(s.buf, fill(c.Chunk, 1)) {
		t.Error("a foreign datagram changed a chunk")
	}
}

// A rank does not receive its own datagrams.
func testOwn(t *testing.T, n Network) {
	t.Helper()
	all := n.Multicast(t, 2)
	c := all[0].Capabilities()
	data := fill(8*c.Chunk, 1)
	send(t, all[0].Sender(0), 1, data, c.Chunk, c.Batch, psns(8))
	s := newSink(c.Chunk, 8)
	receive(t, all[1].Receiver(0), s, func() bool { return s.got == 8 })
	send(t, all[1].Sender(0), 1, data, c.Chunk, c.Batch, []uint32{3})
	own := newSink(c.Chunk, 8)
	receive(t, all[0].Receiver(0), own, func() bool { return own.got > 0 })
	if own.got != 1 || own.count[3] != 1 {
		t.Errorf("the sender received %v", own.count)
	}
}
