package node

import (
	"testing"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/protocol"
)

// Ranks that all make the same calls, eagerly. Rank `far` is a child of rank 0 in the first
// call, then all calls are chains from rank 0 on: it gets lead calls ahead of each hop, so further than
// there are slots, and then takes the greeting of `far` for the first call for another call.
func TestReviewEagerFarAhead(t *testing.T) {
	const size, far = 18, 16
	cfg := eagerConfig() // with the default's 256 slots,
	cfg.InFlight = 16    // and the default's calls in flight
	c := newPlanCluster(t, size, 1, cfg)
	t.Logf("%d slots", c.nodes[0].node.cfg.Layout.Slots())
	var calls []*planCall
	for range 5 { // until the far one owes a word
		calls = append(calls, c.call(0, p2p.Broadcast, "binomial", 10))
	}
	for range 300 {
		calls = append(calls, c.call(0, p2p.Broadcast, "chain", 10))
	}
	for r := range size {
		if r < far {
			for _, k := range calls {
				c.on(k, r)
			}
			c.run()
		}
	}
	ended := 0
	for _, k := range calls {
		if k.shares[0].ended {
			ended++
		}
	}
	t.Logf("rank 0 has ended %d calls, rank %d has begun none", ended, far)
	for r := far; r < size; r++ {
		for _, k := range calls {
			c.on(k, r)
		}
	}
	c.run()
	c.runFor(100 * ms)
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

// The same lead, and then a barrier: rank 0's greeting is further ahead than two turns of the
// slots, so rank 8 drops it, and it is never sent again.
func TestReviewEagerGreetingDropped(t *testing.T) {
	const size, far = 10, 8
	cfg := eagerConfig()
	cfg.Layout, _ = protocol.NewLayout(27)
	c := newPlanCluster(t, size, 1, cfg)
	var calls []*planCall
	for range 66 {
		calls = append(calls, c.call(0, p2p.Broadcast, "chain", 10))
	}
	calls = append(calls, c.call(0, p2p.Barrier, "recursive-doubling", 0))
	for r := range far {
		for _, k := range calls {
			c.on(k, r)
		}
	}
	c.run()
	c.runFor(100 * ms) // patience ends: rank 0 greets all
	t.Logf("rank 0 is at call %d, rank 8 has dropped %d messages", c.nodes[0].node.comms[0].live[0].seq, c.nodes[8].node.Stats().Stale)
	for r := far; r < size; r++ {
		for _, k := range calls {
			c.on(k, r)
		}
	}
	c.run()
	c.runFor(1000 * ms)
	for i, k := range calls {
		for r := range size {
			if s := k.shares[r]; !s.ended || s.err != nil {
				t.Fatalf("call %d rank %d: ended %v, err %v", i, r, s.ended, s.err)
			}
		}
	}
}
