package p2p_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// A message with another digest is a mismatch that names its sender and the call of the sender. It does
// not make the sender ready.
func TestMismatch(t *testing.T) {
	everyAlgorithm(t, func(x subject) {
		t, kind, algo := x.T, x.kind, x.algo
		c := call{algo, p2p.Spec{Kind: kind, Size: 6, Root: 2}}.sized(10)
		for rank := range c.Size {
			s := newSolo(c.plan(t, rank))
			s.start()
			s.acts = nil
			for from := range c.Size {
				m := wire.Msg{
					Kind: wire.MsgReady, Digest: s.plan.Digest + 1, Call: wire.Call{Kind: p2p.Allgather, Bytes: uint64(99 + from)},
				}
				acts := s.Step(1, step.Event{Kind: step.EvMsg, From: from, Msg: &m}, nil)
				if len(acts) != 1 || acts[0].Kind != step.ActMismatch || acts[0].To != from || acts[0].Msg.Call != m.Call {
					t.Errorf("%v: rank %d makes %+v of a digest that is not its own", c, rank, acts)
				}
			}
		}
	})
}

// others are calls that one rank may make while the rest call c.
func others(c call) map[string]call {
	all := map[string]call{}
	bytes, algo, kind, segment := c.sized(11), c, c, c
	if c.Kind != p2p.Barrier {
		all["bytes"] = bytes
		segment.Segment = 5
		all["segment"] = segment
	}
	if list := p2p.Algorithms(c.Kind); len(list) > 1 {
		algo.algo = list[(slices.Index(list, c.algo)+1)%len(list)]
		all["algorithm"] = algo
	}
	kind.Kind = kinds[(slices.Index(kinds, c.Kind)+1)%len(kinds)]
	kind.algo = p2p.Algorithms(kind.Kind)[0]
	all["kind"] = kind.sized(10)
	if c.Kind.Blocks() && c.Kind != p2p.Alltoall {
		counts := c
		counts.Counts = slices.Clone(c.Counts)
		counts.Counts[0]--
		counts.Counts[len(counts.Counts)-1]++
		all["counts"] = counts
	}
	return all
}

// found runs a call that one rank makes differently, and reports whether any rank found out.
func found(t *testing.T, c, odd call, rank int, seed uint64) bool {
	t.Helper()
	plans := c.plans(t)
	plans[rank] = odd.plan(t, rank)
	bufs := make([][]byte, c.Size)
	for r := range bufs {
		bufs[r] = make([]byte, plans[r].Input+plans[r].Output)
	}
	w := newCluster(t, fmt.Sprintf("%v, rank %d calls %v", c, rank, odd), seed, plans, bufs, sum)
	w.Drain(forever)
	return len(w.mismatches) > 0
}

// When one rank makes another call, some rank finds out.
func TestMismatchIsFound(t *testing.T) {
	everyAlgorithm(t, func(x subject) {
		t, kind, algo := x.T, x.kind, x.algo
		for size := 2; size <= 9; size++ {
			c := call{algo, p2p.Spec{Kind: kind, Size: size, Root: size / 2}}.sized(10)
			for what, odd := range others(c) {
				for rank := range size {
					if reflect.DeepEqual(c.specOf(rank), odd.specOf(rank)) {
						continue // the rank does not know the sizes that differ
					}
					if !found(t, c, odd, rank, uint64(rank)) {
						t.Fatalf("%v: no rank finds that rank %d has another %s: %v", c, rank, what, odd)
					}
				}
			}
		}
	})
}

// The same if one rank has another root, also if it takes itself for the root, or the root takes another
// rank for the root.
func TestAnotherRootIsFound(t *testing.T) {
	everyAlgorithm(t, func(x subject) {
		t, kind, algo := x.T, x.kind, x.algo
		if !kind.Rooted() {
			return
		}
		for size := 2; size <= 9; size++ {
			for rank := range size {
				for root := range size {
					c := call{algo, p2p.Spec{Kind: kind, Size: size, Root: size / 2}}.sized(10)
					odd := c
					odd.Root = root
					if root != c.Root && !found(t, c, odd, rank, uint64(rank)) {
						t.Fatalf("%d ranks: no rank finds that rank %d has root %d, the others %d", size, rank, root, c.Root)
					}
				}
			}
		}
	})
}
