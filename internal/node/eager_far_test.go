package node

import (
	"testing"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

// Rank 0 is ahead of each hop of a chain by lead calls, so further ahead of the last than
// there are slots. The greeting of that one for its first call is not taken for another's.
func TestEagerFarAhead(t *testing.T) {
	const size, far = 10, 8
	cfg := eagerConfig()
	cfg.Layout, _ = wire.NewLayout(27)
	c := planWorld(t, size, 1, cfg)
	var calls []*job
	for range 5 { // until the far one owes a word
		calls = append(calls, c.plan(0, p2p.Broadcast, "binomial", 10))
	}
	for range 66 {
		calls = append(calls, c.plan(0, p2p.Broadcast, "chain", 10))
	}
	for r := range size {
		if r < far {
			for _, k := range calls {
				k.on(r)
			}
			c.run()
		}
	}
	for r := far; r < size; r++ {
		for _, k := range calls {
			k.on(r)
		}
	}
	c.run()
	c.RunFor(100 * ms)
	for i, k := range calls {
		for r := range size {
			s := k.shares[r]
			if s == nil || !s.ended || s.err != nil {
				if s == nil {
					t.Fatalf("call %d rank %d: no share", i, r)
				}
				t.Fatalf("call %d rank %d: ended %v, err %v", i, r, s.ended, s.err)
			}
		}
	}
}

// The same lead, and then a barrier: the greeting of rank 0 is kept, however far ahead.
func TestEagerGreetingFromFarAhead(t *testing.T) {
	const size, far = 10, 8
	cfg := eagerConfig()
	cfg.Layout, _ = wire.NewLayout(27)
	c := planWorld(t, size, 1, cfg)
	var calls []*job
	for range 66 {
		calls = append(calls, c.plan(0, p2p.Broadcast, "chain", 10))
	}
	calls = append(calls, c.plan(0, p2p.Barrier, "recursive-doubling", 0))
	for r := range far {
		for _, k := range calls {
			k.on(r)
		}
	}
	c.run()
	c.RunFor(100 * ms) // patience ends: rank 0 greets all
	for r := far; r < size; r++ {
		for _, k := range calls {
			k.on(r)
		}
	}
	c.run()
	c.RunFor(1000 * ms)
	for i, k := range calls {
		for r := range size {
			if s := k.shares[r]; !s.ended || s.err != nil {
				t.Fatalf("call %d rank %d: ended %v, err %v", i, r, s.ended, s.err)
			}
		}
	}
}
