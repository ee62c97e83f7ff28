package node

import (
	"testing"

	"github.com/allcast/allcast/internal/p2p"
)

// One rank makes another call. All ranks learn of it in any order of delivery, and each blames one of two
// ranks whose calls differ. No rank completes with wrong data.
func TestPlanMismatch(t *testing.T) {
	everyPlan(t, []int{2, 3, 5}, func(x planCase) {
		t, kind, algo, size, seed := x.T, x.kind, x.algo, x.size, x.seed
		for what, other := range map[string]func(c *cluster) *job{
			"size":      func(c *cluster) *job { return c.plan(0, kind, algo, 11) },
			"plan":      func(c *cluster) *job { return c.plan(0, p2p.Barrier, "dissemination", 0) },
			"reduction": func(c *cluster) *job { return c.plan(0, p2p.Allreduce, "inc", 12) },
		} {
			if kind == p2p.Barrier && what != "reduction" {
				continue
			}
			c := planWorld(t, size, seed, quietConfig())
			odd := c.Rand.IntN(size)
			k, o := c.plan(0, kind, algo, 10), other(c)
			for r := range size {
				if r == odd {
					o.on(r)
				} else {
					k.on(r)
				}
			}
			c.hurt = true // pieces of the other call may be refused
			c.run()
			if k.failures(Mismatch, upTo(size)...) == 0 || o.failures(Mismatch, upTo(size)...) == 0 {
				t.Fatalf("%v/%s on %d ranks: no rank finds that rank %d made another call", kind, algo, size, odd)
			}
		}
	})
}

// Some ranks multicast and some do not: neither would ever answer the greeting of the other.
func TestPlanMeetsMulticast(t *testing.T) {
	everyPlan(t, []int{2, 3, 5, 8}, func(x planCase) {
		t, kind, algo, size, seed := x.T, x.kind, x.algo, x.size, x.seed
		for _, before := range []bool{false, true} {
			c := planWorld(t, size, seed, quietConfig())
			odd := c.Rand.IntN(size)
			k := c.plan(0, kind, algo, 10)
			o := c.job(0, allgather(size, 10, 4))
			if before {
				o.on(odd)
			}
			k.on(without(size, odd)...)
			c.run()
			if !before {
				o.on(odd)
				c.run()
			}
			if k.failures(Mismatch, upTo(size)...) == 0 || o.failures(Mismatch, upTo(size)...) == 0 {
				t.Fatalf("%v/%s on %d ranks: no rank finds that rank %d made another call", kind, algo, size, odd)
			}
		}
	})
}

// A rank dies at any moment: the call completes or fails on every other rank, and failures blame the dead
// rank.
func TestPlanPeerLost(t *testing.T) {
	everyPlan(t, []int{2, 3, 6}, func(x planCase) {
		t, kind, algo, size, seed := x.T, x.kind, x.algo, x.size, x.seed
		c := planWorld(t, size, seed, quietConfig())
		dead := c.Rand.IntN(size)
		k := c.plan(0, kind, algo, 10)
		for r := range size {
			if r != dead || seed%2 == 0 {
				k.on(r)
			}
		}
		c.Drain(c.Rand.IntN(20 * size))
		c.killSeenBy(dead, upTo(size))
		c.run()
		k.failures(Lost, dead)
		after := c.plan(0, kind, algo, 10)
		after.on(without(size, dead)...)
		c.run()
		if n := after.failures(Lost, dead); n != size-1 {
			t.Fatalf("%v/%s: only %d of %d ranks refuse the next call", kind, algo, n, size-1)
		}
	})
}

// Abort ends a call on all ranks in any phase, and later calls too. Other communicators are not affected.
func TestPlanAbort(t *testing.T) {
	everyPlan(t, []int{2, 5}, func(x planCase) {
		t, kind, algo, size, seed := x.T, x.kind, x.algo, x.size, x.seed
		c := planWorld(t, size, seed, quietConfig())
		c.comm(1, upTo(size)...)
		idle, by := c.Rand.IntN(size), c.Rand.IntN(size)
		k, other := c.plan(0, kind, algo, 10), c.plan(1, kind, algo, 10)
		for r := range size {
			other.on(r)
			if r != idle {
				k.on(r) // it cannot complete everywhere
			}
		}
		if seed%2 == 0 {
			c.run()
		}
		c.hurt = true
		c.abort(by, 0)
		c.run()
		k.failures(Aborted, by)
		c.allRight(other)
		k.on(idle)
		c.run()
		if e := k.shares[idle].err; e == nil || e.Culprit != by || e.Reason != Aborted {
			t.Fatalf("%v/%s: rank %d: %v", kind, algo, idle, e)
		}
	})
}

// A rank takes nothing for a call that failed: the buffers belong to the user.
func TestPlanNothingAfterFailure(t *testing.T) {
	everyPlan(t, []int{4}, func(x planCase) {
		t, kind, algo, size, seed := x.T, x.kind, x.algo, x.size, x.seed
		c := planWorld(t, size, seed, quietConfig())
		k := c.plan(0, kind, algo, 10)
		hold := func(held bool) {
			for _, h := range c.hosts {
				h.results.Held = held
				for _, q := range h.pieces {
					q.Held = held
				}
			}
		}
		hold(true)
		k.all()
		c.abort(0, 0)
		c.run()
		k.failures(Aborted, 0)
		hold(false)
		c.run()
		k.failures(Aborted, 0)
	})
}

// A rank that does not make a call is found when a deadline passes.
func TestPlanDeadline(t *testing.T) {
	everyPlan(t, []int{2, 3, 6}, func(x planCase) {
		t, kind, algo, size, seed := x.T, x.kind, x.algo, x.size, x.seed
		cfg := quietConfig()
		cfg.Deadline = 20 * ms
		c := planWorld(t, size, seed, cfg)
		idle := c.Rand.IntN(size)
		k := c.plan(0, kind, algo, 10)
		k.on(without(size, idle)...)
		c.RunFor(200 * ms)
		if k.failures(Deadline, idle) == 0 {
			t.Fatalf("%v/%s: no rank notices that rank %d makes no call", kind, algo, idle)
		}
	})
}
