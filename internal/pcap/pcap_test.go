package pcap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
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
	p := capture(t, func(w *Writer) {
		w.psn = 0x5123456
		w.Datagram(3_000_000_007, 258, 0x2abcd, 0xdeadbeef, 64)
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
	if !bytes.Equal(p.payload, make([]byte, 64)) {
		t.Errorf("payload % x", p.payload)
	}
}

func TestReliable(t *testing.T) {
	const vaddr, size = 0x7fff_0123_4567_89ab, 4096
	ps := capture(t, func(w *Writer) {
		w.Message(1, 0, 1<<20-1, []byte("hello"))
		w.ReadRequest(2, 4, 5, vaddr, size)
		w.ReadResponse(3, 5, 4, size)
		w.Send(4, 6, 7, 10)
	})
	be := binary.BigEndian

	m := ps[0]
	if m.opcode != 0x05 || m.pad != 3 || m.destQP != 0x200000 || m.psn != 0 || !m.ackReq ||
		string(m.payload) != "msg:hello" || be.Uint32(m.ext) != 'h' {
		t.Errorf("message %+v", m)
	}
	if m.srcIP != "10 0 0 1" || m.dstIP != "10 16 0 0" || m.dstMAC != "2:0:a:10:0:0" {
		t.Errorf("message %+v", m)
	}
	q := ps[1]
	if q.opcode != 0x0c || q.destQP != 0x200004 || q.psn != 1 || len(q.payload) != 0 ||
		be.Uint64(q.ext) != vaddr || be.Uint32(q.ext[12:]) != size {
		t.Errorf("request %+v", q)
	}
	r := ps[2]
	if r.opcode != 0x10 || r.destQP != 0x200005 || r.psn != 2 || r.ackReq || len(r.payload) != size ||
		be.Uint32(r.ext) != 0x1f000003 {
		t.Errorf("response %+v", r)
	}
	if r.srcIP != q.dstIP || r.dstIP != q.srcIP {
		t.Errorf("response from %s to %s", r.srcIP, r.dstIP)
	}
	if d := ps[3]; d.opcode != 0x05 || d.psn != 3 || len(d.payload) != 10 || be.Uint32(d.ext) != 0 {
		t.Errorf("data %+v", d)
	}
}

// A message that is longer than the MTU becomes several packets, with the opcodes of their places.
func TestSegments(t *testing.T) {
	for _, c := range []struct {
		length                 int
		send, response, ucSend string // opcode and length of each packet
	}{
		{0, "05:0", "10:0", "25:0"},
		{3, "05:3", "10:3", "65:3"},
		{4096, "05:4096", "10:4096", "65:4096"},
		{4097, "00:4096 03:1", "0d:4096 0f:1", "20:4096 23:1"},
		{12288, "00:4096 01:4096 03:4096", "0d:4096 0e:4096 0f:4096", "20:4096 21:4096 23:4096"},
	} {
		for name, want := range map[string]string{"send": c.send, "response": c.response, "datagram": c.ucSend} {
			got := describe(capture(t, func(w *Writer) {
				switch name {
				case "send":
					w.Send(0, 1, 2, c.length)
				case "response":
					w.ReadResponse(0, 1, 2, c.length)
				default:
					w.Datagram(0, 1, 2, 7, c.length)
				}
			}))
			if got != want {
				t.Errorf("%s of %d bytes: %s, want %s", name, c.length, got, want)
			}
		}
	}
}

func describe(ps []packet) string {
	var words []string
	for _, p := range ps {
		words = append(words, fmt.Sprintf("%02x:%d", p.opcode, len(p.payload)))
	}
	return strings.Join(words, " ")
}

// The packets of a long message hold all of it, and each starts with the tag.
func TestLongMessage(t *testing.T) {
	message := pattern(10000)
	ps := capture(t, func(w *Writer) { w.Message(0, 1, 2, message) })
	if got := describe(ps); got != "00:4096 01:4096 03:1820" {
		t.Errorf("packets %s", got)
	}
	var got []byte
	for _, p := range ps {
		if !bytes.HasPrefix(p.payload, []byte(messageTag)) {
			t.Errorf("packet without tag: % x", p.payload[:4])
		}
		got = append(got, p.payload[len(messageTag):]...)
	}
	if !bytes.Equal(got, message) {
		t.Error("the packets do not hold the message")
	}
}

// No bytes of one packet leak into the next.
func TestWritersStateIsNotKept(t *testing.T) {
	alone := capture(t, func(w *Writer) { w.Datagram(9, 1, 2, 3, 100) })[0]
	after := capture(t, func(w *Writer) {
		w.ReadRequest(1, 1<<20-1, 77, math.MaxUint64, math.MaxUint32)
		w.Message(1, 99, 98, pattern(126))
		w.psn = 0
		w.Datagram(9, 1, 2, 3, 100)
	})[2]
	if alone.icrc != after.icrc || alone.pad != after.pad || alone.length != after.length {
		t.Errorf("first packet %+v\nafter other packets %+v", alone, after)
	}
}

func TestNoAllocation(t *testing.T) {
	w := newWriter(t, io.Discard)
	message := pattern(5000)
	n := testing.AllocsPerRun(1000, func() {
		w.Datagram(1, 2, 3, 4, 300)
		w.Datagram(1, 2, 3, 4, 5000)
		w.Message(1, 2, 3, message)
		w.Send(1, 2, 3, 300)
		w.ReadRequest(1, 2, 3, 5, 6)
		w.ReadResponse(1, 2, 3, 4096)
	})
	if n != 0 {
		t.Errorf("%v allocations for six calls", n)
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
			w.Message(0, 1, 2, pattern(100))
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
	f.Add(int64(1), 2, 3, uint32(4), uint32(5), uint64(6), []byte("payload"), 7)
	f.Add(int64(math.MinInt64), -1, -1, uint32(0), uint32(math.MaxUint32), uint64(0), []byte(nil), math.MinInt)
	f.Add(int64(math.MaxInt64), math.MaxInt, 1<<20, uint32(0), uint32(0), uint64(0), []byte{0}, 1<<20)
	f.Fuzz(func(t *testing.T, at int64, src, dst int, imm, psn uint32, vaddr uint64, message []byte, length int) {
		length = min(length, 1<<20)
		var counts [5]int
		file := func(write func(*Writer)) []packet {
			return capture(t, func(w *Writer) {
				w.psn = psn
				write(w)
			})
		}
		for i, write := range []func(w *Writer){
			func(w *Writer) { w.Datagram(at, src, dst, imm, length) },
			func(w *Writer) { w.Send(at, src, dst, length) },
			func(w *Writer) { w.ReadResponse(at, src, dst, length) },
			func(w *Writer) { w.ReadRequest(at, src, dst, vaddr, imm) },
			func(w *Writer) { w.Message(at, src, dst, message) },
		} {
			for k, p := range file(write) {
				counts[i] += len(p.payload)
				if p.psn != (psn+uint32(k))&0xffffff {
					t.Errorf("call %d, packet %d: PSN %#x", i, k, p.psn)
				}
			}
		}
		data := max(length, 0)
		if counts[0] != data || counts[1] != data || counts[2] != data || counts[3] != 0 || counts[4] < len(message) {
			t.Errorf("payloads of %v bytes; want %d of data, %d of the message", counts, data, len(message))
		}
	})
}
