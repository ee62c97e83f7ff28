package wire

import "testing"

// The header of every datagram is written and read once.
func BenchmarkHeader(b *testing.B) {
	h := Header{Token: 1 << 60, Comm: 3, Imm: 7}
	buf := make([]byte, HeaderSize)
	b.Run("Put", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.Put(buf)
		}
	})
	b.Run("Parse", func(b *testing.B) {
		h.Put(buf)
		b.ReportAllocs()
		for b.Loop() {
			if ParseHeader(buf) != h {
				b.Fatal("another header came back")
			}
		}
	})
}
