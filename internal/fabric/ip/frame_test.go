package ip

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
)

var frameSamples = []frameHeader{
	{kind: frameMessage, n: 5},
	{kind: frameMessage},
	{kind: frameData, n: 3, op: fabric.OpKey{Comm: 1, Seq: 2}, nth: 3, len: 3},
	{kind: frameData, op: fabric.OpKey{Comm: 1, Seq: 2}},
	{kind: frameRead, n: 3 * frameSpan, op: fabric.OpKey{Comm: 1 << 31, Seq: 1 << 63}, id: 5},
	{kind: frameAnswer, n: 1, op: fabric.OpKey{Comm: 4, Seq: 5}, id: 6, len: 2},
	{kind: frameAnswer, n: 1, op: fabric.OpKey{Comm: 4, Seq: 5}, id: 6, len: 2, part: 1},
	{kind: frameGoodbye},
}

func TestFrameRoundTrip(t *testing.T) {
	var b []byte
	for i := range frameSamples {
		h := &frameSamples[i]
		from := len(b)
		b = frameAppend(b, h)
		if len(b)-from != frameHeaderSize[h.kind] || len(b)-from > frameMaxHeader {
			t.Errorf("%+v has %d bytes", h, len(b)-from)
		}
		b = append(b, make([]byte, h.n)...)
	}
	f := newFrameReader(bytes.NewReader(b))
	for _, want := range frameSamples {
		h, err := f.next()
		if err != nil || h != want {
			t.Fatalf("%+v, %v, want %+v", h, err, want)
		}
		if _, err := f.skip(h.n); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.next(); err != io.EOF {
		t.Error(err)
	}
}

// Neither kind of frame allocates when it is written or read.
func TestFrameAllocs(t *testing.T) {
	var b []byte
	for i := range frameSamples {
		b = append(frameAppend(b, &frameSamples[i]), make([]byte, frameSamples[i].n)...)
	}
	src := bytes.NewReader(b)
	f := newFrameReader(src)
	out := make([]byte, 0, frameMaxHeader)
	n := testing.AllocsPerRun(100, func() {
		src.Reset(b)
		f.br.Reset(src)
		for range frameSamples {
			h, err := f.next()
			if err != nil {
				t.Fatal(err)
			}
			out = frameAppend(out[:0], &h)
			if _, err := f.message(h.n); err != nil {
				t.Fatal(err)
			}
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzFrame feeds the decoder with anything. What it lets through is in range, in
// order, and encodes to the same bytes.
func FuzzFrame(f *testing.F) {
	var all []byte
	for i := range frameSamples {
		h := &frameSamples[i]
		b := append(frameAppend(nil, h), make([]byte, h.n)...)
		f.Add(b)
		all = append(all, b...)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, in []byte) {
		r := newFrameReader(bytes.NewReader(in))
		at := 0
		var last frameHeader
		for {
			h, err := r.next()
			if err != nil {
				if err != io.EOF && !errors.Is(err, errFrame) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatal(err)
				}
				if err == io.EOF && at != len(in) {
					t.Fatalf("ends at %d of %d", at, len(in))
				}
				return
			}
			b := frameAppend(nil, &h)
			if !bytes.HasPrefix(in[at:], b) {
				t.Fatalf("%+v is %x, was %x", h, b, in[at:])
			}
			if h.n > frameMaxPart || h.len < 0 || h.part < 0 || h.part+int64(h.n) > max(h.len, MaxMessage) {
				t.Fatalf("%+v", h)
			}
			if h.part > 0 && (last.kind != h.kind || last.part+int64(last.n) != h.part) {
				t.Fatalf("%+v after %+v", h, last)
			}
			last = h
			at += len(b)
			switch h.kind {
			case frameMessage:
				var msg []byte
				if msg, err = r.message(h.n); err == nil && !bytes.Equal(msg, in[at:at+h.n]) {
					t.Fatalf("message %x", msg)
				}
			case frameRead:
				var list []byte
				if list, err = r.message(h.n); err == nil {
					checkSpans(t, list)
				}
			default:
				_, err = r.skip(h.n)
			}
			if err != nil {
				if !errors.Is(err, io.ErrUnexpectedEOF) || at+h.n <= len(in) {
					t.Fatal(err)
				}
				return
			}
			at += h.n
		}
	})
}

// checkSpans checks that a list of spans is refused or comes back as it was.
func checkSpans(t *testing.T, list []byte) {
	t.Helper()
	spans, err := frameParseSpans(list)
	if err != nil {
		if !errors.Is(err, errFrame) {
			t.Fatal(err)
		}
		return
	}
	if b := frameAppendSpans(nil, spans); !bytes.Equal(b, list) {
		t.Fatalf("%v is %x, was %x", spans, b, list)
	}
	for _, s := range spans {
		if s.Off < 0 || s.Len < 0 || s.Off+s.Len < 0 {
			t.Fatalf("%+v", s)
		}
	}
}
