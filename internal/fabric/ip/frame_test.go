package ip

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
)

var frameSamples = []session.Frame{
	{Kind: session.Message, N: 5},
	{Kind: session.Message},
	{Kind: session.Data, N: 3, Op: fabric.OpKey{Comm: 1, Seq: 2}, Nth: 3, Len: 3},
	{Kind: session.Data, Op: fabric.OpKey{Comm: 1, Seq: 2}},
	{Kind: session.Read, N: 3 * session.SpanSize, Op: fabric.OpKey{Comm: 1 << 31, Seq: 1 << 63}, ID: 5},
	{Kind: session.Answer, N: 1, Op: fabric.OpKey{Comm: 4, Seq: 5}, ID: 6, Len: 2},
	{Kind: session.Answer, N: 1, Op: fabric.OpKey{Comm: 4, Seq: 5}, ID: 6, Len: 2, Off: 1},
	{Kind: session.Goodbye},
}

func TestFrameRoundTrip(t *testing.T) {
	var b []byte
	for i := range frameSamples {
		h := &frameSamples[i]
		from := len(b)
		b = h.AppendStream(b)
		if n, err := session.StreamSize(b[from:]); err != nil || len(b)-from != n || n > session.StreamMaxHeader {
			t.Errorf("%+v has %d bytes", h, len(b)-from)
		}
		b = append(b, make([]byte, h.N)...)
	}
	f := newFrameReader(bytes.NewReader(b))
	for _, want := range frameSamples {
		h, err := f.next()
		if err != nil || h != want {
			t.Fatalf("%+v, %v, want %+v", h, err, want)
		}
		if _, err := f.skip(h.N); err != nil {
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
		b = append((&frameSamples[i]).AppendStream(b), make([]byte, frameSamples[i].N)...)
	}
	src := bytes.NewReader(b)
	f := newFrameReader(src)
	out := make([]byte, 0, session.StreamMaxHeader)
	n := testing.AllocsPerRun(100, func() {
		src.Reset(b)
		f.br.Reset(src)
		for range frameSamples {
			h, err := f.next()
			if err != nil {
				t.Fatal(err)
			}
			out = h.AppendStream(out[:0])
			if _, err := f.message(h.N); err != nil {
				t.Fatal(err)
			}
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzFrame feeds arbitrary bytes to the decoder. The frames that it accepts are in range and in order,
// and encode to the same bytes.
func FuzzFrame(f *testing.F) {
	var all []byte
	for i := range frameSamples {
		h := &frameSamples[i]
		b := append(h.AppendStream(nil), make([]byte, h.N)...)
		f.Add(b)
		all = append(all, b...)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, in []byte) {
		r := newFrameReader(bytes.NewReader(in))
		at := 0
		var last session.Frame
		for {
			h, err := r.next()
			if err != nil {
				if err != io.EOF && !errors.Is(err, session.ErrMalformed) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatal(err)
				}
				if err == io.EOF && at != len(in) {
					t.Fatalf("ends at %d of %d", at, len(in))
				}
				return
			}
			b := h.AppendStream(nil)
			if !bytes.HasPrefix(in[at:], b) {
				t.Fatalf("%+v is %x, was %x", h, b, in[at:])
			}
			if h.N > session.MaxPart || h.Len < 0 || h.Off < 0 || h.Off+int64(h.N) > max(h.Len, session.MaxMessage) {
				t.Fatalf("%+v", h)
			}
			if h.Off > 0 && (last.Kind != h.Kind || last.Off+int64(last.N) != h.Off) {
				t.Fatalf("%+v after %+v", h, last)
			}
			last = h
			at += len(b)
			switch h.Kind {
			case session.Message:
				var msg []byte
				if msg, err = r.message(h.N); err == nil && !bytes.Equal(msg, in[at:at+h.N]) {
					t.Fatalf("message %x", msg)
				}
			case session.Read:
				var list []byte
				if list, err = r.message(h.N); err == nil {
					checkSpans(t, list)
				}
			default:
				_, err = r.skip(h.N)
			}
			if err != nil {
				if !errors.Is(err, io.ErrUnexpectedEOF) || at+h.N <= len(in) {
					t.Fatal(err)
				}
				return
			}
			at += h.N
		}
	})
}

// checkSpans checks that a list of spans is refused, or encodes to the same bytes.
func checkSpans(t *testing.T, list []byte) {
	t.Helper()
	spans, err := session.ParseSpans(list)
	if err != nil {
		if !errors.Is(err, session.ErrMalformed) {
			t.Fatal(err)
		}
		return
	}
	if b := session.AppendSpans(nil, spans); !bytes.Equal(b, list) {
		t.Fatalf("%v is %x, was %x", spans, b, list)
	}
	for _, s := range spans {
		if s.Off < 0 || s.Len < 0 || s.Off+s.Len < 0 {
			t.Fatalf("%+v", s)
		}
	}
}
