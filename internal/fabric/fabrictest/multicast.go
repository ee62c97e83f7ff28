package fabrictest

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
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
	for _, c := range []struct {
		name string
		test func(*testing.T, Network)
	}{
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
		{"close", testMulticastClose},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, n) })
	}
}

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
	}
}

// Chunks arrive at all other ranks with their headers, whatever the receiver expects, and not at the
// sender or on another subgroup.
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
		for sub := range all[0].Subgroups() {
			send(t, all[0].Sender(sub), uint32(sub), data, c.Chunk, c.Batch, psns(chunks))
			for r, m := range all[1:] {
				s := newSink(c.Chunk, 2*chunks)
				s.guess = slices.Clone(guess)
				receive(t, m.Receiver(sub), s, func() bool { return s.got == chunks })
				if !bytes.Equal(s.buf[:len(data)], data) {
					t.Errorf("%s, subgroup %d: rank %d got other bytes", name, sub, r+1)
				}
				for psn := range uint32(chunks) {
					end := min(int(psn+1)*c.Chunk, len(data))
					want := wire.Header{Token: token, Comm: uint32(sub), Imm: psn}
					if c.Header >= wire.HeaderSize+wire.SumSize {
						want.Sum = want.Checksum(data[int(psn)*c.Chunk : end])
					}
					if s.heads[psn] != want || s.count[psn] != 1 {
						t.Errorf("%s, subgroup %d: chunk %d came %d times, with %+v", name, sub, psn, s.count[psn], s.heads[psn])
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

// Wake ends one Receive, and several Wakes before it are one.
func testWake(t *testing.T, n Network) {
	t.Helper()
	m := n.Multicast(t, 1)[0]
	rx := m.Receiver(0)
	s := newSink(m.Capabilities().Chunk, 1)
	for range 100 {
		rx.Wake()
		rx.Wake()
		if err := rx.Receive(s); err != nil {
			t.Fatal(err)
		}
	}
	if s.idle != 100 {
		t.Errorf("the sink was idle %d times, want 100", s.idle)
	}
	var returned atomic.Bool
	done := make(chan error, 1)
	go func() {
		err := rx.Receive(s)
		returned.Store(true)
		done <- err
	}()
	for range 1000 {
		runtime.Gosched()
	}
	if returned.Load() {
		t.Error("Receive returned without a reason")
	}
	rx.Wake()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// No Wake is lost among datagrams and other Wakes, and no Receive returns without a reason.
func testWakeWithTraffic(t *testing.T, n Network) {
	t.Helper()
	const wakers, tasks, datagrams = 4, 300, 100
	all := n.Multicast(t, 2)
	c := all[0].Capabilities()
	rx := all[1].Receiver(0)
	var posted atomic.Int64
	var wg sync.WaitGroup
	for range wakers {
		wg.Go(func() {
			for range tasks {
				posted.Add(1)
				rx.Wake()
			}
		})
	}
	wg.Go(func() { send(t, all[0].Sender(0), 1, fill(c.Chunk, 1), c.Chunk, 1, make([]uint32, datagrams)) })
	s := newSink(c.Chunk, 1)
	returns := 0
	receive(t, rx, s, func() bool {
		returns++
		return posted.Load() == wakers*tasks && s.got == datagrams
	})
	wg.Wait()
	if limit := wakers*tasks + datagrams + 2; returns > limit || s.idle != returns-1 {
		t.Errorf("Receive returned %d times, at most %d had a reason; idle %d times", returns-1, limit, s.idle)
	}
}

func testPending(t *testing.T, n Network) {
	t.Helper()
	all := n.Multicast(t, 2)
	c := all[0].Capabilities()
	rx := all[1].Receiver(0)
	s := newSink(c.Chunk, 1)
	rx.Wake()
	if err := rx.Receive(s); err != nil {
		t.Fatal(err)
	}
	if rx.Pending() {
		t.Error("datagrams are pending before one was sent")
	}
	send(t, all[0].Sender(0), 1, fill(c.Chunk, 1), c.Chunk, 1, []uint32{0})
	for begin := time.Now(); !rx.Pending(); runtime.Gosched() {
		if time.Since(begin) > waitLimit {
			t.Fatal("no datagram is pending")
		}
	}
	receive(t, rx, s, func() bool { return s.got == 1 })
	blocked := make(chan error, 1)
	go func() { blocked <- rx.Receive(s) }()
	for begin := time.Now(); rx.Pending(); runtime.Gosched() {
		if time.Since(begin) > waitLimit {
			t.Fatal("datagrams are pending after all were received")
		}
	}
	rx.Wake()
	if err := <-blocked; err != nil {
		t.Fatal(err)
	}
}

// An attached receiver hands its datagrams to the sink when the leader polls. Without a poller,
// Attach does nothing.
func testPoller(t *testing.T, n Network) {
	t.Helper()
	all := n.Multicast(t, 2)
	c := all[1].Capabilities()
	rx := all[1].Receiver(0)
	s := newSink(c.Chunk, 8)
	if c.Poller == nil {
		if rx.Attach(s, nil) {
			t.Error("a receiver was attached without a poller")
		}
		return
	}
	for !c.Poller.Lead() { // the background leads for a moment
		runtime.Gosched()
	}
	if !rx.Attach(s, func(err error) { t.Error(err) }) {
		t.Fatal("the receiver was not attached")
	}
	data := fill(8*c.Chunk, 1)
	send(t, all[0].Sender(0), 1, data, c.Chunk, c.Batch, psns(8))
	kick := time.AfterFunc(waitLimit, c.Poller.Kick)
	defer kick.Stop()
	for begin := time.Now(); s.got < 8; c.Poller.Poll(waitLimit) {
		if time.Since(begin) > waitLimit {
			t.Fatalf("%d chunks arrived", s.got)
		}
	}
	if !bytes.Equal(s.buf, data) {
		t.Error("other bytes arrived")
	}
	idle := s.idle
	rx.Wake()
	c.Poller.Poll(waitLimit)
	if s.idle == idle {
		t.Error("Wake did not make the poller call the sink")
	}
	c.Poller.Kick()
	c.Poller.Poll(-1) // returns because of Kick
	c.Poller.Yield()
}

// Datagrams of a communicator with groups of its own reach its members only.
func testGroups(t *testing.T, n Network) {
	t.Helper()
	all := n.Multicast(t, 3)
	c := all[0].Capabilities()
	if c.Groups == nil {
		return // all communicators share the job's groups
	}
	const own, shared = 77, 1
	data := fill(c.Chunk, 1)
	for round := range 3 {
		name := fmt.Sprintf("comm %d", round)
		for _, m := range all[:2] {
			if err := m.Capabilities().Groups.AddComm(own, name); err != nil {
				t.Fatal(err)
			}
		}
		send(t, all[0].Sender(0), own, data, c.Chunk, 1, []uint32{0})
		s := newSink(c.Chunk, 1)
		receive(t, all[1].Receiver(0), s, func() bool { return s.got == 1 })
		send(t, all[0].Sender(0), shared, data, c.Chunk, 1, []uint32{0})
		for _, m := range all[1:] {
			s := newSink(c.Chunk, 1)
			receive(t, m.Receiver(0), s, func() bool { return s.got == 1 })
			if s.heads[0].Comm != shared {
				t.Errorf("a rank outside of the communicator got %+v", s.heads[0])
			}
		}
		for _, m := range all[:2] {
			m.Capabilities().Groups.RemoveComm(own)
		}
		// The job's groups carry the communicator again.
		send(t, all[0].Sender(0), own, data, c.Chunk, 1, []uint32{0})
		for _, m := range all[1:] {
			s := newSink(c.Chunk, 1)
			receive(t, m.Receiver(0), s, func() bool { return s.got == 1 })
		}
	}
}

// Close ends all Receive calls, and Send afterwards.
func testMulticastClose(t *testing.T, n Network) {
	t.Helper()
	m := n.Multicast(t, 1)[0]
	var wg sync.WaitGroup
	for sub := range m.Subgroups() {
		wg.Go(func() {
			rx := m.Receiver(sub)
			for range 2 {
				if err := rx.Receive(newSink(1, 1)); !errors.Is(err, fabric.ErrClosed) {
					t.Errorf("Receive: %v", err)
				}
			}
			rx.Wake()
			_ = rx.Stats()
		})
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	tx := m.Sender(0)
	b := &fabric.Batch{Headers: make([]wire.Header, 1), Payloads: make([][]byte, 1)}
	if _, err := tx.Send(b); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("Send: %v", err)
	}
	tx.Await(time.Millisecond)
	if err := m.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}
