package wire

import "testing"

// Every chunk costs one encoding and one decoding of its immediate.
func BenchmarkImm(b *testing.B) {
	l := mustLayout(b, 0)
	b.ReportAllocs()
	for i := uint32(0); b.Loop(); i++ {
		want := i & (1<<DefaultPSNBits - 1)
		if _, psn := l.Split(l.Imm(7, want)); psn != want {
			b.Fatal("the decoded PSN differs")
		}
	}
}
