package node

import (
	"testing"

	"github.com/allcast/allcast/internal/p2p"
)

// eagerConfig makes every plan eager.
func eagerConfig() Config {
	cfg := quietConfig()
	cfg.Eager = 1 << 20
	return cfg
}

// Every algorithm completes with the right data when nobody waits for a greeting.
func TestEagerCompletes(t *testing.T) { planCompletes(t, eagerConfig()) }

// Ranks that are far behind get what they need, and are not left further behind than
// lead calls on a communicator.
func TestEagerLead(t *testing.T) {
	for seed := range uint64(60) {
		c := newPlanCluster(t, 5, seed, eagerConfig())
		c.comm(1, 3, 0, 4)
		c.completed(c.oneByOne(60, 2)...)
		for _, h := range c.nodes {
			// Each of the others is at most lead calls ahead, on both communicators; they
			// may be ahead by different calls.
			if limit := 2 * eagerLead * 4; h.most > limit {
				t.Fatalf("seed %d: rank %d kept pieces of %d calls, want at most %d", seed, h.id, h.most, limit)
			}
			if len(h.early) > 0 {
				t.Fatalf("seed %d: rank %d still keeps pieces of %d calls", seed, h.id, len(h.early))
			}
		}
	}
}

// A root that only sends gets no further ahead of a rank that does nothing than lead
// calls.
func TestEagerStops(t *testing.T) {
	c := newPlanCluster(t, 2, 1, eagerConfig())
	var calls []*planCall
	for range 3 * eagerLead {
		k := c.call(0, p2p.Broadcast, "binomial", 10)
		calls = append(calls, k)
		c.on(k, 0)
	}
	c.run()
	ended := 0
	for _, k := range calls {
		if k.shares[0].ended {
			ended++
		}
	}
	if ended != eagerLead || c.nodes[1].most != eagerLead {
		t.Fatalf("%d calls have ended and %d are kept, want %d", ended, c.nodes[1].most, eagerLead)
	}
	for _, k := range calls {
		c.on(k, 1)
	}
	c.run()
	c.completed(calls...)
}

// Ranks that made different calls find out, also when one of them is done, or when both
// only receive: that takes a moment.
func TestEagerMismatch(t *testing.T) {
	everyPlan(t, []int{2, 3, 5}, func(x planCase) {
		t, kind, algo, size, seed := x.T, x.kind, x.algo, x.size, x.seed
		if kind == p2p.Barrier || algo == "inc" {
			return
		}
		for what, other := range map[string]func(c *planCluster) *planCall{
			"size": func(c *planCluster) *planCall { return c.call(0, kind, algo, 11) },
			"plan": func(c *planCluster) *planCall { return c.call(0, p2p.Barrier, "dissemination", 0) },
			"root": func(c *planCluster) *planCall {
				k := c.call(0, p2p.Broadcast, "binomial", 10)
				k.spec.Root = size - 1
				return k
			},
		} {
			c := newPlanCluster(t, size, seed, eagerConfig())
			odd := c.rng.IntN(size)
			k, o := c.call(0, kind, algo, 10), other(c)
			c.hurt = true // pieces of the other call may be refused
			for _, r := range c.rng.Perm(size) {
				if r == odd {
					c.on(o, r)
				} else {
					c.on(k, r)
				}
				if c.rng.IntN(2) == 0 {
					c.run()
				}
			}
			c.runFor(100 * ms)
			found := 0
			for r := range size {
				call := k
				if r == odd {
					call = o
				}
				s := call.shares[r]
				if !s.ended {
					t.Fatalf("%v/%s on %d ranks, another %s: rank %d never ends", kind, algo, size, what, r)
				}
				if s.err != nil && s.err.Reason != Mismatch {
					t.Fatalf("%v/%s on %d ranks, another %s: rank %d: %v", kind, algo, size, what, r, s.err)
				}
				if s.err != nil {
					found++
				}
			}
			if found == 0 {
				t.Fatalf("%v/%s on %d ranks, another %s: nobody finds out", kind, algo, size, what)
			}
		}
	})
}
