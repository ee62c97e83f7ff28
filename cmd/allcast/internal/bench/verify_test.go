package bench

import (
	"fmt"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/reduce"
)

// Every wrong byte is counted, whatever its position and the length.
func TestPatternFindsWrongBytes(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 9, 63, 64, 100, 8191, 8192, 8201} {
		b := make([]byte, n)
		seed := patternSeed(3, 1, 0)
		fillPattern(b, seed, 0)
		if w := wrongPattern(b, seed); w != 0 {
			t.Errorf("%d bytes: %d wrong before any was changed", n, w)
		}
		for i := range b {
			b[i] ^= byte(1 << (i % 8))
			if w := wrongPattern(b, seed); w != int64(i+1) {
				t.Fatalf("%d bytes: %d found wrong of %d", n, w, i+1)
			}
		}
	}
	b := make([]byte, 4096)
	fillPattern(b, patternSeed(1, 0, 0), 0)
	for _, seed := range []uint64{patternSeed(2, 0, 0), patternSeed(1, 1, 0), patternSeed(1, 0, 1)} {
		if w := wrongPattern(b, seed); w < 4000 {
			t.Errorf("only %d of 4096 bytes tell one contribution from another", w)
		}
	}
}

// The result of package reduce is right in any order of the contributions; a changed element is wrong.
func TestReferenceAgrees(t *testing.T) {
	const n, first = 1100, 77 // more than one batch
	for dtype := allcast.Float32; dtype <= allcast.Bool; dtype++ {
		for op := allcast.Sum; op <= allcast.PremultipliedSum; op++ {
			if reduce.Into(nil, nil, reduce.Type(dtype), reduce.Op(op)) != nil {
				continue // the type does not have this operator
			}
			for _, ranks := range []int{1, 5, 64} {
				if ranks == 64 && dtype != allcast.BFloat16 && dtype != allcast.Int8 {
					continue // the types with the fewest digits are the hardest
				}
				t.Run(fmt.Sprintf("%v/%v/%d", dtype, op, ranks), func(t *testing.T) {
					e := elements{dtype, op, ranks, 0}
					for _, step := range []int{1, ranks - 1} {
						got := contributions(t, e, n, first, step)
						if w := e.wrong(got, 9, first); w != 0 {
							t.Errorf("%d bytes wrong", w)
						}
						last := dtype.Size()*n - 1
						got[last] ^= 0x40 // in the exponent, or in the highest bits
						if w := e.wrong(got, 9, first); w != int64(dtype.Size()) {
							t.Errorf("a changed element counts as %d wrong bytes", w)
						}
						got[last] ^= 0x40
						few := dtype == allcast.Bool || op == allcast.And || op == allcast.Or // few results are possible
						if w := e.wrong(got, 10, first); w < int64(len(got))/2 && !few {
							t.Errorf("another call's result: only %d of %d bytes wrong", w, len(got))
						}
					}
				})
			}
		}
	}
}

// contributions reduces the contributions of all ranks to call 9, starting with rank 0, in steps of step.
func contributions(t *testing.T, e elements, n int, first uint64, step int) []byte {
	t.Helper()
	acc, b := make([]byte, n*e.t.Size()), make([]byte, n*e.t.Size())
	for i := range e.ranks {
		rank := i * max(1, step) % e.ranks
		e.fill(b, patternSeed(9, rank, 0), first)
		if e.op == allcast.PremultipliedSum {
			if err := reduce.Scale(b, b, reduce.Type(e.t), factor(rank)); err != nil {
				t.Fatal(err)
			}
		}
		if i == 0 {
			copy(acc, b)
			continue
		}
		if err := reduce.Into(acc, b, reduce.Type(e.t), reduce.Op(e.op)); err != nil {
			t.Fatal(err)
		}
	}
	if err := reduce.Finish(acc, reduce.Type(e.t), reduce.Op(e.op), e.ranks); err != nil {
		t.Fatal(err)
	}
	return acc
}
