package ip

import (
	"bytes"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
)

func BenchmarkFrame(b *testing.B) {
	op := fabric.OpKey{Comm: 1, Seq: 2}
	for _, c := range []struct {
		name string
		h    frameHeader
	}{
		{"Message", frameHeader{kind: frameMessage, n: 64}},
		{"Data", frameHeader{kind: frameData, n: frameMaxPart, op: op, nth: 3, len: 1 << 30}},
		{"Read", frameHeader{kind: frameRead, op: op, id: 5, n: frameSpan}},
	} {
		buf := frameAppend(nil, &c.h)
		b.Run("Append "+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				buf = frameAppend(buf[:0], &c.h)
			}
		})
		b.Run("Parse "+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := frameParse(buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFrameReader takes messages off a connection that always has more.
func BenchmarkFrameReader(b *testing.B) {
	h := frameHeader{kind: frameMessage, n: 64}
	one := append(frameAppend(nil, &h), make([]byte, h.n)...)
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
		if _, err := f.message(got.n); err != nil {
			b.Fatal(err)
		}
	}
}
