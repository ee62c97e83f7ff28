package p2p_test

import (
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
)

// incUp starts an IncOp and returns all that it sends up.
func incUp(t *testing.T, r *p2p.Reduction) (*p2p.IncOp, []step.Action) {
	t.Helper()
	op := p2p.NewIncOp(r)
	var all []step.Action
	for ev := (step.Event{Kind: step.EvStart}); ; {
		n := uint32(0)
		for _, a := range op.Step(1, ev, nil) {
			if a.Kind == step.ActReduce {
				all = append(all, a)
				n++
			}
		}
		if n == 0 {
			return op, all
		}
		ev = step.Event{Kind: step.EvSent, N: n}
	}
}

// A rank sends up the P - 1 blocks of the others once, in Reduce-Scatter, and
// everything once in Allreduce; all ranks in the same order.
func TestIncSendsUp(t *testing.T) {
	for size := 2; size <= 9; size++ {
		for _, counts := range append(ragged(size), slices.Repeat([]int64{25}, size)) {
			var first []int64
			for rank := range size {
				_, up := incUp(t, &p2p.Reduction{Kind: p2p.ReduceScatter, Rank: rank, Size: size, Counts: counts, Chunk: 10})
				c := call{"inc", p2p.Spec{Kind: p2p.ReduceScatter, Size: size, Counts: counts}}
				ref := c.reference(0)
				lo, hi := ref.Block(rank)
				seen, order := make([]int, ref.Total()), []int64{}
				for _, a := range up {
					for i := range a.Len {
						seen[a.Off+i]++
					}
					if a.Len > 10 || a.Len == 0 && a.Off != lo {
						t.Errorf("%v: rank %d sends up %+v", c, rank, a)
					}
					order = append(order, a.Off)
				}
				for i, n := range seen {
					own := int64(i) >= lo && int64(i) < hi
					if own != (n == 0) || n > 1 {
						t.Fatalf("%v: rank %d sends byte %d up %d times", c, rank, i, n)
					}
				}
				checkOrder(t, c, rank, &first, order)
			}
		}
	}
}

// checkOrder compares the chunks that a rank and the ranks before it send up. Both may lack some of their
// own chunks, but chunks that both send come in the same order.
func checkOrder(t *testing.T, c call, rank int, first *[]int64, order []int64) {
	t.Helper()
	if *first == nil {
		*first = order
		return
	}
	common := func(a, b []int64) (both []int64) {
		for _, x := range a {
			if slices.Contains(b, x) {
				both = append(both, x)
			}
		}
		return both
	}
	if a, b := common(*first, order), common(order, *first); !slices.Equal(a, b) {
		t.Errorf("%v: rank %d sends up %v, rank 0 %v", c, rank, b, a)
	}
}

// Results are taken for the own block only, between start and end.
func TestIncResults(t *testing.T) {
	r := &p2p.Reduction{Kind: p2p.ReduceScatter, Rank: 1, Size: 3, Counts: []int64{20, 20, 20}, Chunk: 10}
	if ok, _ := p2p.NewIncOp(r).Result(1, 20, 10, nil); ok {
		t.Error("a result is taken before the start")
	}
	op, _ := incUp(t, r)
	_, hello := greeting(t, &p2p.Reduction{Kind: r.Kind, Rank: 0, Size: r.Size, Counts: r.Counts, Chunk: r.Chunk})
	op.Step(1, step.Event{Kind: step.EvMsg, From: 0, Msg: &hello}, nil)
	refuse := func(why string, off, length int64) {
		t.Helper()
		if ok, acts := op.Result(1, off, length, nil); ok || len(acts) > 0 {
			t.Errorf("%s: %d bytes at %d are taken", why, length, off)
		}
	}
	wrong := func() {
		t.Helper()
		for _, w := range [][2]int64{
			{10, 10}, {40, 10}, {35, 10}, {15, 10}, {20, 21}, {20, 0}, {20, -1}, {-10, 10}, {1 << 62, 1 << 62},
		} {
			refuse("not ours", w[0], w[1])
		}
	}
	wrong()
	if ok, acts := op.Result(1, 30, 10, nil); !ok || len(acts) > 0 || op.Missing(nil) != "10 bytes of the sum" {
		t.Errorf("the second chunk: %v, %v; %s is missing", ok, acts, op.Missing(nil))
	}
	wrong()
	ok, acts := op.Result(1, 20, 10, nil)
	if !ok || len(acts) != 2 || acts[0].Kind != step.ActComplete || acts[1].Kind != step.ActClosed ||
		op.Missing(nil) != "nothing" {
		t.Errorf("the last chunk: %v, %v; %s is missing", ok, acts, op.Missing(nil))
	}
	refuse("after the end", 20, 10)
}

// A duplicate chunk of the sum does not count as another chunk.
func TestIncDuplicateResult(t *testing.T) {
	op, _ := incUp(t, &p2p.Reduction{Kind: p2p.ReduceScatter, Rank: 1, Size: 3, Counts: []int64{20, 20, 20}, Chunk: 10})
	op.Result(1, 20, 10, nil)
	if ok, _ := op.Result(1, 20, 10, nil); ok || op.Phase() == step.Closed {
		t.Errorf("the same chunk twice is taken: %v; the Op is %v", ok, op.Phase())
	}
}
