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

// Every algorithm completes with the right data when no rank waits for a greeting.
func TestEagerCompletes(t *testing.T) { planCompletes(t, eagerConfig()) }

// Ranks that are far behind get their data. No rank gets more than eagerLead calls ahead of them on a
// communicator.
func TestEagerLead(t *testing.T) {
	for seed := range uint64(60) {
		c := planWorld(t, 5, seed, eagerConfig())
		c.comm(1, 3, 0, 4)
		c.allRight(c.oneByOne(60, 2)...)
		for _, h := range c.hosts {
			// Each of the four others is at most eagerLead calls ahead on each communicator, by different calls.
			if limit := 2 * eagerLead * 4; h.peakEarly > limit {
				t.Fatalf("seed %d: rank %d kept pieces of %d calls, want at most %d", seed, h.ID, h.peakEarly, limit)
			}
			if len(h.early) > 0 {
				t.Fatalf("seed %d: rank %d still keeps pieces of %d calls", seed, h.ID, len(h.early))
			}
		}
	}
}

// A root that only sends gets at most eagerLead calls ahead of a rank that does nothing.
func TestEagerStops(t *testing.T) {
	c := planWorld(t, 2, 1, eagerConfig())
	var calls []*job
	for range 3 * eagerLead {
		k := c.plan(0, p2p.Broadcast, "binomial", 10)
		calls = append(calls, k)
		k.on(0)
	}
	c.run()
	ended := 0
	for _, k := range calls {
		if k.shares[0].ended {
			ended++
		}
	}
	if ended != eagerLead || c.hosts[1].peakEarly != eagerLead {
		t.Fatalf("%d calls have ended and %d are kept, want %d", ended, c.hosts[1].peakEarly, eagerLead)
	}
	for _, k := range calls {
		k.on(1)
	}
	c.run()
	c.allRight(calls...)
}

// Ranks that made different calls find out, also when one of them is done. When both only receive, it
// takes a moment.
func TestEagerMismatch(t *testing.T) {
	everyPlan(t, []int{2, 3, 5}, func(x planCase) {
		t, kind, algo, size, seed := x.T, x.kind, x.algo, x.size, x.seed
		if kind == p2p.Barrier || algo == "inc" {
			return
		}
		for what, other := range map[string]func(c *cluster) *job{
			"size": func(c *cluster) *job { return c.plan(0, kind, algo, 11) },
			"plan": func(c *cluster) *job { return c.plan(0, p2p.Barrier, "dissemination", 0) },
			"root": func(c *cluster) *job {
				k := c.plan(0, p2p.Broadcast, "binomial", 10)
				k.spec.Root, k.Root = size-1, size-1
				return k
			},
		} {
			c := planWorld(t, size, seed, eagerConfig())
			odd := c.Rand.IntN(size)
			k, o := c.plan(0, kind, algo, 10), other(c)
			c.hurt = true // pieces of the other call may be refused
			for _, r := range c.Rand.Perm(size) {
				if r == odd {
					o.on(r)
				} else {
					k.on(r)
				}
				if c.Rand.IntN(2) == 0 {
					c.run()
				}
			}
			c.RunFor(100 * ms)
			found := k.failures(Mismatch, upTo(size)...) + o.failures(Mismatch, upTo(size)...)
			if found == 0 {
				t.Fatalf("%v/%s on %d ranks, another %s: no rank finds out", kind, algo, size, what)
			}
		}
	})
}
