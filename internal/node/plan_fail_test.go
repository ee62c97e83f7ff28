package node

import (
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/p2p"
)

// One rank calls something else: all learn of it, whatever overtakes what, and
// each blames a rank that called something else than another one did. Nobody that
// ends well has wrong data.
func TestPlanMismatch(t *testing.T) {
	everyPlan(t, []int{2, 3, 5}, func(x planCase) {
		t, kind, algo, size, seed := x.T, x.kind, x.algo, x.size, x.seed
		for what, other := range map[string]func(c *planCluster) *planCall{
			"size":      func(c *planCluster) *planCall { return c.call(0, kind, algo, 11) },
			"plan":      func(c *planCluster) *planCall { return c.call(0, p2p.Barrier, "dissemination", 0) },
			"reduction": func(c *planCluster) *planCall { return c.call(0, p2p.Allreduce, "inc", 12) },
		} {
			if kind == p2p.Barrier && what != "reduction" {
				continue
			}
			c := newPlanCluster(t, size, seed, quietConfig())
			odd := c.rng.IntN(size)
			k, o := c.call(0, kind, algo, 10), other(c)
			for r := range size {
				if r == odd {
					c.on(o, r)
				} else {
					c.on(k, r)
				}
			}
			c.hurt = true // pieces of the other call may be refused
			c.run()
			if c.failed(k, Mismatch, upTo(size)...) == 0 || c.failed(o, Mismatch, upTo(size)...) == 0 {
				t.Fatalf("%v/%s on %d ranks: nobody finds that rank %d made another call", kind, algo, size, odd)
			}
		}
	})
}

// Some multicast and some do not: neither would ever answer the other's greeting.
func TestPlanMeetsMulticast(t *testing.T) {
	everyPlan(t, []int{2, 3, 5, 8}, func(x planCase) {
		t, kind, algo, size, seed := x.T, x.kind, x.algo, x.size, x.seed
		for _, before := range []bool{false, true} {
			c := newPlanCluster(t, size, seed, quietConfig())
			odd := c.rng.IntN(size)
			k := c.call(0, kind, algo, 10)
			o := c.call(0, p2p.Allgather, "mcast", 10)
			plan, err := mcast.Plan(allgather(size, 10, 4), testConfig().Layout)
			if err != nil {
				t.Fatal(err)
			}
			multicast := func() {
				o.shares[odd] = &planShare{call: o, rank: odd, buf: o.input(odd)}
				if err := c.nodes[odd].node.Start(c.now, 0, o.req, plan); err != nil {
					t.Fatal(err)
				}
				c.nodes[odd].act()
			}
			if before {
				multicast()
			}
			c.on(k, slices.DeleteFunc(upTo(size), func(r int) bool { return r == odd })...)
			c.run()
			if !before {
				multicast()
				c.run()
			}
			if c.failed(k, Mismatch, upTo(size)...) == 0 || c.failed(o, Mismatch, upTo(size)...) == 0 {
				t.Fatalf("%v/%s on %d ranks: nobody finds that rank %d made another call", kind, algo, size, odd)
			}
		}
	})
}

// A rank dies anywhere: every other call completes or fails, and blames it.
func TestPlanPeerLost(t *testing.T) {
	everyPlan(t, []int{2, 3, 6}, func(x planCase) {
		t, kind, algo, size, seed := x.T, x.kind, x.algo, x.size, x.seed
		c := newPlanCluster(t, size, seed, quietConfig())
		dead := c.rng.IntN(size)
		k := c.call(0, kind, algo, 10)
		for r := range size {
			if r != dead || seed%2 == 0 {
				c.on(k, r)
			}
		}
		for range c.rng.IntN(20 * size) {
			c.later("die", dead, dead, func() {})
		}
		c.later("die", dead, dead, func() { c.kill(dead) })
		c.run()
		c.failed(k, Lost, dead)
		after := c.call(0, kind, algo, 10)
		c.on(after, slices.DeleteFunc(upTo(size), func(r int) bool { return r == dead })...)
		c.run()
		if n := c.failed(after, Lost, dead); n != size-1 {
			t.Fatalf("%v/%s: only %d of %d ranks refuse the next call", kind, algo, n, size-1)
		}
	})
}

// Abort ends a call on all ranks, wherever it is, and later ones too; other
// communicators do not notice.
func TestPlanAbort(t *testing.T) {
	everyPlan(t, []int{2, 5}, func(x planCase) {
		t, kind, algo, size, seed := x.T, x.kind, x.algo, x.size, x.seed
		c := newPlanCluster(t, size, seed, quietConfig())
		c.comm(1, upTo(size)...)
		idle, by := c.rng.IntN(size), c.rng.IntN(size)
		k, other := c.call(0, kind, algo, 10), c.call(1, kind, algo, 10)
		for r := range size {
			c.on(other, r)
			if r != idle {
				c.on(k, r) // it cannot complete everywhere
			}
		}
		if seed%2 == 0 {
			c.run()
		}
		if err := c.nodes[by].node.Abort(0); err != nil {
			t.Fatal(err)
		}
		c.hurt = true
		c.nodes[by].act()
		c.run()
		c.failed(k, Aborted, by)
		c.completed(other)
		c.on(k, idle)
		c.run()
		if e := k.shares[idle].err; e == nil || e.Culprit != by || e.Reason != Aborted {
			t.Fatalf("%v/%s: rank %d: %v", kind, algo, idle, e)
		}
	})
}

// What arrives for a call that failed is not taken: its buffers are the user's.
func TestPlanNothingAfterFailure(t *testing.T) {
	everyPlan(t, []int{4}, func(x planCase) {
		t, kind, algo, size, seed := x.T, x.kind, x.algo, x.size, x.seed
		c := newPlanCluster(t, size, seed, quietConfig())
		k := c.call(0, kind, algo, 10)
		for _, l := range []string{"piece", "result"} {
			for from := -1; from < size; from++ {
				for to := range size {
					c.held[lineKey{l, from, to}] = true
				}
			}
		}
		c.all(k)
		if err := c.nodes[0].node.Abort(0); err != nil {
			t.Fatal(err)
		}
		c.nodes[0].act()
		c.run()
		c.failed(k, Aborted, 0)
		clear(c.held)
		c.run()
		c.failed(k, Aborted, 0)
	})
}

// A rank that does not make a call is found when a deadline passes.
func TestPlanDeadline(t *testing.T) {
	everyPlan(t, []int{2, 3, 6}, func(x planCase) {
		t, kind, algo, size, seed := x.T, x.kind, x.algo, x.size, x.seed
		cfg := quietConfig()
		cfg.Deadline = 20 * ms
		c := newPlanCluster(t, size, seed, cfg)
		idle := c.rng.IntN(size)
		k := c.call(0, kind, algo, 10)
		c.on(k, slices.DeleteFunc(upTo(size), func(r int) bool { return r == idle })...)
		c.runFor(200 * ms)
		if c.failed(k, Deadline, idle) == 0 {
			t.Fatalf("%v/%s: nobody notices that rank %d makes no call", kind, algo, idle)
		}
	})
}
