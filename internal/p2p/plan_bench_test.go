package p2p_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/p2p"
)

// BenchmarkNew makes one rank's plan, as every call does.
func BenchmarkNew(b *testing.B) {
	const ranks, block = 64, 64 << 10
	for _, kind := range []p2p.Kind{p2p.Broadcast, p2p.Allgather, p2p.ReduceScatter, p2p.Allreduce, p2p.Barrier} {
		spec := p2p.Spec{Kind: kind, Rank: 5, Size: ranks, Align: 4}
		switch kind {
		case p2p.Broadcast, p2p.Allreduce:
			spec.Bytes = ranks * block
		case p2p.Allgather, p2p.ReduceScatter:
			spec.Counts = slices.Repeat([]int64{block}, ranks)
		}
		for _, algo := range p2p.Algorithms(kind) {
			b.Run(fmt.Sprintf("%v/%s", kind, algo), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := p2p.New(algo, spec); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
