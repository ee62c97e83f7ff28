package wire

import "testing"

// The immediate of every chunk is made and taken apart once.
func BenchmarkImm(b *testing.B) {
	l := mustLayout(b, 0)
	b.ReportAllocs()
	for i := uint32(0); b.Loop(); i++ {
		want := i & (1<<DefaultPSNBits - 1)
		if _, psn := l.Split(l.Imm(7, want)); psn != want {
			b.Fatal("another chunk came back")
		}
	}
}
