package ip

import (
	"bytes"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
)

func BenchmarkFrame(b *testing.B) {
	op := fabric.OpKey{Comm: 1, Seq: 2}
	for _, c := range []struct {
		name string
		h    session.Frame
	}{
		{"Message", session.Frame{Kind: session.Message, N: 64}},
		{"Data", session.Frame{Kind: session.Data, N: session.MaxPart, Op: op, Nth: 3, Len: 1 << 30}},
		{"Read", session.Frame{Kind: session.Read, Op: op, ID: 5, N: session.SpanSize}},
	} {
		buf := (&c.h).AppendStream(nil)
		b.Run("Append "+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				buf = (&c.h).AppendStream(buf[:0])
			}
		})
		b.Run("Parse "+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := session.ParseStream(buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFrameReader reads messages from a connection that always has more.
func BenchmarkFrameReader(b *testing.B) {
	h := session.Frame{Kind: session.Message, N: 64}
	one := append(h.AppendStream(nil), make([]byte, h.N)...)
	many := bytes.Repeat(one, 1024)
	r := bytes.NewReader(many)
	f := newFrameReader(r)
	b.ReportAllocs()
	b.SetBytes(int64(len(one)))
	for i := 0; b.Loop(); i++ {
		if i%1024 == 0 {
			r.Reset(many)
		}
		got, err := f.next()
		if err != nil {
			b.Fatal(err)
		}
		if _, err := f.message(got.N); err != nil {
			b.Fatal(err)
		}
	}
}
