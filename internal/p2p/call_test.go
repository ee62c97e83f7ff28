package p2p_test

import (
	"testing"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

// Every algorithm has a number, so that errors can name it on all ranks.
func TestEveryAlgorithmHasANumber(t *testing.T) {
	for _, k := range []p2p.Kind{p2p.Broadcast, p2p.Allgather, p2p.ReduceScatter, p2p.Allreduce, p2p.Barrier} {
		for _, name := range p2p.Algorithms(k) {
			if a := wire.AlgorithmOf(name); a == 0 || a.String() != name {
				t.Errorf("%v: %q is %d, %v", k, name, a, a)
			}
		}
	}
}
