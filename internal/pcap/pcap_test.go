package pcap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"testing"
)

func newWriter(t testing.TB, out io.Writer) *Writer {
	t.Helper()
	w, err := NewWriter(out)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// capture returns the packets that the function write records.
func capture(t testing.TB, write func(*Writer)) []packet {
	t.Helper()
	var file bytes.Buffer
	w := newWriter(t, &file)
	write(w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return parse(t, file.Bytes())
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + 1)
	}
	return b
}

func TestDatagram(t *testing.T) {
	data := pattern(64)
	p := capture(t, func(w *Writer) {
		w.Datagram(3_000_000_007, 258, 0x2abcd, 0xdeadbeef, 0x5123456, data, len(data))
	})[0]
	if p.at != 3_000_000_007 || p.opcode != 0x65 || p.destQP != 0xffffff || p.psn != 0x123456 || p.ackReq {
		t.Errorf("%+v", p)
	}
	if p.dstMAC != "1:0:5e:42:ab:cd" || p.dstIP != "239 194 171 205" {
		t.Errorf("group %s, %s", p.dstMAC, p.dstIP)
	}
	if p.srcMAC != "2:0:a:0:1:3" || p.srcIP != "10 0 1 3" {
		t.Errorf("source %s, %s", p.srcMAC, p.srcIP)
	}
	be := binary.BigEndian
	if qp, imm := be.Uint32(p.ext[4:]), be.Uint32(p.ext[8:]); qp != 0x100102 || imm != 0xdeadbeef {
		t.Errorf("source QP %#x, immediate %#x", qp, imm)
	}
	if !p.complete || !bytes.Equal(p.payload, data) {
		t.Errorf("payload % x", p.payload)
	}
}

func TestReliable(t *testing.T) {
	const vaddr, size = 0x7fff_0123_4567_89ab, 4096
	ps := capture(t, func(w *Writer) {
		w.Message(1, 0, 1<<20-1, 7, []byte("hello"), 5)
		w.ReadRequest(2, 4, 5, 8, vaddr, size)
		w.ReadResponse(3, 5, 4, 8, nil, size)
	})
	be := binary.BigEndian

	m := ps[0]
	if m.opcode != 0x04 || m.pad != 3 || m.destQP != 0x200000 || m.psn != 7 || !m.ackReq || string(m.payload) != "hello" {
		t.Errorf("message %+v", m)
	}
	if m.srcIP != "10 0 0 1" || m.dstIP != "10 16 0 0" || m.dstMAC != "2:0:a:10:0:0" {
		t.Errorf("message %+v", m)
	}
	q := ps[1]
	if q.opcode != 0x0c || q.destQP != 0x200004 || q.length != 0 || !q.complete ||
		be.Uint64(q.ext) != vaddr || be.Uint32(q.ext[12:]) != size {
		t.Errorf("request %+v", q)
	}
	r := ps[2]
	if r.opcode != 0x10 || r.destQP != 0x200005 || r.psn != 8 || r.ackReq || r.length != size || r.complete ||
		be.Uint32(r.ext) != 0x1f000009 {
		t.Errorf("response %+v", r)
	}
	if r.srcIP != q.dstIP || r.dstIP != q.srcIP {
		t.Errorf("response from %s to %s", r.srcIP, r.dstIP)
	}
}

// Lengths of packets whose payload is complete, truncated or absent, as in the simulator.
func TestLengths(t *testing.T) {
	for _, c := range []struct {
		have, length, snap   int
		recorded, wantLength int
		complete             bool
	}{
		{0, 0, 128, 0, 0, true},
		{1, 1, 128, 1, 1, true},
		{2, 2, 128, 2, 2, true},
		{3, 3, 128, 3, 3, true},
		{4, 4, 128, 4, 4, true},
		{128, 128, 128, 128, 128, true},
		{129, 129, 128, 128, 129, false}, // snap
		{0, 1, 128, 0, 1, false},         // no payload bytes given
		{0, 4096, 128, 0, 4096, false},
		{10, 4095, 128, 10, 4095, false},
		{9, 4, 128, 4, 4, true}, // more bytes than the length
		{9, -1, 128, 0, 0, true},
		{8, 8, 0, 0, 8, false},
		{8, 8, -1, 0, 8, false},
		{65484, 65484, math.MaxInt, 65484, 65484, true},
		{65488, 65488, math.MaxInt, 65488, 65488, false}, // exceeds the IPv4 length field
		{1 << 17, 1 << 17, math.MaxInt, 65535, 1 << 17, false},
		{0, math.MaxInt, 128, 0, 1 << 30, false},
	} {
		p := capture(t, func(w *Writer) {
			w.Snap = c.snap
			w.ReadResponse(0, 1, 2, 3, pattern(c.have), c.length)
		})[0]
		if p.length != c.wantLength || len(p.payload) != c.recorded || p.complete != c.complete {
			t.Errorf("%+v: length %d, recorded %d, complete %v", c, p.length, len(p.payload), p.complete)
		}
		if !bytes.Equal(p.payload, pattern(c.have)[:c.recorded]) {
			t.Errorf("%+v: wrong payload", c)
		}
		if want := min(20+8+12+4+(c.wantLength+3)/4*4+4, 65535); p.ipLen != want {
			t.Errorf("%+v: IP length %d, want %d", c, p.ipLen, want)
		}
	}
}

// No bytes of one packet leak into the next.
func TestWritersStateIsNotKept(t *testing.T) {
	a := func(w *Writer) { w.Message(9, 1, 2, 3, []byte{1}, 1) }
	alone := capture(t, a)[0]
	after := capture(t, func(w *Writer) {
		w.ReadRequest(1, 1<<20-1, 77, 0xffffff, math.MaxUint64, math.MaxUint32)
		w.Datagram(1, 99, 98, math.MaxUint32, 97, pattern(126), 126)
		a(w)
	})[2]
	if alone.icrc != after.icrc || alone.pad != after.pad || alone.orig != after.orig {
		t.Errorf("first packet %+v\nafter other packets %+v", alone, after)
	}
}

func TestNoAllocation(t *testing.T) {
	w := newWriter(t, io.Discard)
	data := pattern(300)
	n := testing.AllocsPerRun(1000, func() {
		w.Datagram(1, 2, 3, 4, 5, data, len(data))
		w.Message(1, 2, 3, 4, data[:5], 5)
		w.ReadRequest(1, 2, 3, 4, 5, 6)
		w.ReadResponse(1, 2, 3, 4, nil, 4096)
	})
	if n != 0 {
		t.Errorf("%v allocations for four packets", n)
	}
}

// failing accepts some bytes and then fails, with a different error each time.
type failing struct{ room, calls int }

func (f *failing) Write(b []byte) (int, error) {
	if len(b) <= f.room {
		f.room -= len(b)
		return len(b), nil
	}
	f.room = 0
	f.calls++
	return 0, errs[min(f.calls, len(errs))-1]
}

var errs = []error{errors.New("disk full"), errors.New("later error")}

func TestWriteErrors(t *testing.T) {
	if _, err := NewWriter(&failing{}); err != errs[0] {
		t.Errorf("NewWriter: %v", err)
	}
	for _, packets := range []int{1, 10000} { // the write fails in Close, or long before
		out := &failing{room: 100}
		w := newWriter(t, out)
		for range packets {
			w.Message(0, 1, 2, 3, pattern(100), 100)
		}
		for range 2 {
			if err := w.Close(); err != errs[0] {
				t.Errorf("Close after %d packets: %v", packets, err)
			}
		}
		if out.calls != 1 {
			t.Errorf("%d writes after the error", out.calls-1)
		}
	}
}

// No input panics, and every input gives a well-formed capture, which parse checks.
func FuzzWriter(f *testing.F) {
	f.Add(int64(1), 2, 3, uint32(4), uint32(5), uint64(6), []byte("payload"), 7, 128)
	f.Add(int64(math.MinInt64), -1, -1, uint32(0), uint32(math.MaxUint32), uint64(0), []byte(nil), math.MinInt,
		math.MinInt)
	f.Add(int64(math.MaxInt64), math.MaxInt, 1<<20, uint32(0), uint32(0), uint64(0), []byte{0}, math.MaxInt, math.MaxInt)
	f.Fuzz(func(t *testing.T, at int64, src, dst int, imm, psn uint32, vaddr uint64, payload []byte, length, snap int) {
		ps := capture(t, func(w *Writer) {
			w.Snap = snap
			w.Datagram(at, src, dst, imm, psn, payload, length)
			w.Message(at, src, dst, psn, payload, length)
			w.ReadRequest(at, src, dst, psn, vaddr, imm)
			w.ReadResponse(at, src, dst, psn, payload, length)
		})
		if len(ps) != 4 {
			t.Fatalf("%d packets", len(ps))
		}
		if got := binary.BigEndian.Uint32(ps[0].ext[8:]); got != imm {
			t.Errorf("immediate %#x, want %#x", got, imm)
		}
		for i, p := range ps {
			if p.psn != psn&0xffffff {
				t.Errorf("packet %d: PSN %#x, want %#x", i, p.psn, psn)
			}
			if i != 2 && p.length != min(max(length, 0), 1<<30) {
				t.Errorf("packet %d: length %d, want %d", i, p.length, length)
			}
		}
	})
}
