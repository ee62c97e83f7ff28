package node

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Bad calls are refused at once, and leave no trace.
func TestReductionBadCalls(t *testing.T) {
	c := planWorld(t, 3, 1, quietConfig())
	c.comm(1, 1, 2)
	n := c.hosts[1].node
	start := func(comm uint32, gather bool, change func(*inc.Reduction)) error {
		r := &inc.Reduction{Kind: wire.ReduceScatter, Rank: 1, Size: 3, Counts: []int64{1, 2, 3}, Chunk: 8}
		change(r)
		if gather {
			return n.StartReduction(c.Now, comm, 0, r, c.gatherRounds([]int64{1, 2, 3}))
		}
		return n.StartReduction(c.Now, comm, 0, r, nil)
	}
	for what, x := range map[string]struct{ err, want error }{
		"communicator":   {start(9, false, func(*inc.Reduction) {}), ErrComm},
		"another rank's": {start(0, false, func(r *inc.Reduction) { r.Rank = 2 }), ErrSize},
		"not all ranks of the job": {start(1, false, func(r *inc.Reduction) {
			*r = inc.Reduction{
				Kind: wire.ReduceScatter, Size: 2, Counts: []int64{1, 2}, Chunk: 8,
			}
		}), ErrSize},
		"gathers what it scatters": {start(0, true, func(*inc.Reduction) {}), ErrSize},
		"gathers nothing":          {start(0, false, func(r *inc.Reduction) { r.Kind = wire.Allreduce }), ErrSize},
	} {
		if !errors.Is(x.err, x.want) {
			t.Errorf("%s: error %v, want %v", what, x.err, x.want)
		}
	}
	for what, change := range map[string]func(*inc.Reduction){
		"no chunk":       func(r *inc.Reduction) { r.Chunk = 0 },
		"too few blocks": func(r *inc.Reduction) { r.Counts = r.Counts[:1] },
		"another kind":   func(r *inc.Reduction) { r.Kind = wire.Allgather },
	} {
		if start(0, false, change) == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	if len(n.Actions()) > 0 || n.comms[0].nextSeq != 0 || n.comms[0].reductions != 0 {
		t.Error("a refused call had an effect")
	}
	c.allRight(c.reduceScatter(0, 5).all())
}

// Datagrams of reductions are lost, repeated and reordered at every hop. Several communicators reduce at once,
// beside other calls.
func TestReductionLosses(t *testing.T) {
	for seed := range uint64(80) {
		c := world(t, 2+int(seed%6), quietConfig())
		c.comm(1, c.Rand.Perm(len(c.hosts))...)
		c.randomly(seed, clustertest.Faults{Loss: 0.05 * float64(seed%5), Duplicate: 0.1})
		var jobs []*job
		for i := range 8 {
			jobs = append(jobs, c.mixed(uint32(i%2)).on(upTo(len(c.hosts))...))
		}
		c.finish()
		c.allRight(jobs...)
	}
}

// mixed plans a call, most likely a reduction.
func (c *cluster) mixed(comm uint32) *job {
	switch c.Rand.IntN(5) {
	case 0:
		return c.job(comm, allgather(len(c.hosts), int64(c.Rand.IntN(30)), 4))
	case 1:
		return c.plan(comm, p2p.Allreduce, "ring", int64(c.Rand.IntN(20)))
	case 2:
		return c.plan(comm, p2p.Allreduce, "inc", int64(c.Rand.IntN(40)))
	default:
		return c.reduceScatter(comm, int64(c.Rand.IntN(60)))
	}
}

// A communicator reduces one call at a time. Other calls and communicators do not wait.
func TestReductionsTakeTurns(t *testing.T) {
	c := planWorld(t, 4, 3, quietConfig())
	c.comm(1, 3, 2, 1, 0)
	hold := func(held bool) {
		for _, a := range c.sums {
			a.arrivals.Held = held
		}
	}
	hold(true)
	first, second := c.reduceScatter(0, 10).all(), c.plan(0, p2p.Allreduce, "inc", 10).all()
	gather, other := c.job(0, allgather(4, 10, 4)).all(), c.plan(0, p2p.Barrier, "dissemination", 0).all()
	c.allRight(gather, other)
	elsewhere := c.reduceScatter(1, 10).all()
	for _, h := range c.hosts {
		for _, key := range []opKey{{0, 0}, {1, 0}} {
			if r := h.openRound(key); r == nil || r.red == nil {
				t.Fatalf("rank %d has no reduction %v", h.ID, key)
			}
		}
		if len(second.shares[h.ID].rounds) > 0 {
			t.Fatalf("rank %d has begun its second reduction", h.ID)
		}
		for _, v := range h.node.Inspect()[0].Open {
			if v.Req == second.req && v.Phase != step.Queued {
				t.Fatalf("rank %d shows the second reduction as %v", h.ID, v.Phase)
			}
		}
	}
	hold(false)
	c.run()
	c.allRight(first, second, elsewhere)
	if n := first.fellBack() + second.fellBack() + elsewhere.fellBack(); n > 0 {
		t.Errorf("%d ranks fell back", n)
	}
}

// A rank loses the connection to its aggregator at any moment. The call completes point to point, and so do later
// calls until the connection is back.
func TestReductionAggregationLost(t *testing.T) {
	for seed := range uint64(60) {
		c := world(t, 2+int(seed%6), quietConfig())
		c.randomly(seed, clustertest.Faults{Loss: 0.02 * float64(seed%3)})
		loser := c.hosts[c.Rand.IntN(len(c.hosts))]
		kind := []p2p.Kind{p2p.ReduceScatter, p2p.Allreduce}[seed%2]
		during := c.plan(0, kind, "inc", 100).on(upTo(len(c.hosts))...)
		for range c.Rand.IntN(300 * len(c.hosts)) {
			c.Step()
		}
		unfinished := !c.ended(during)
		loser.node.SetAggregation(c.Now, inc.Aggregation{Why: "the aggregator at 10.0.0.1:7 does not answer"})
		loser.act()
		after := c.plan(0, kind, "inc", 20).on(upTo(len(c.hosts))...)
		c.finish()
		c.allRight(during, after)
		if n := after.fellBack(); n != len(c.hosts) {
			t.Fatalf("seed %d: %d of %d ranks know that the second call did without aggregators", seed, n, len(c.hosts))
		}
		if why := after.shares[loser.ID].fallback; !strings.Contains(why, "10.0.0.1:7") {
			t.Fatalf("seed %d: the reason is %q", seed, why)
		}
		if n := during.fellBack(); n > 0 && !unfinished {
			t.Fatalf("seed %d: %d ranks fell back in a call that was over", seed, n)
		}
		loser.node.SetAggregation(c.Now, inc.Aggregation{Window: incWindow})
		c.RunFor(inc.RetryAfter + ms)
		again := c.plan(0, kind, "inc", 20).on(upTo(len(c.hosts))...)
		c.finish()
		c.allRight(again)
		if n := again.fellBack(); n > 0 {
			t.Fatalf("seed %d: %d ranks do without aggregators that are back: %q", seed, n, again.shares[0].fallback)
		}
	}
}

// An aggregator stops without a trace. The call completes point to point, and later calls do not try again for
// RetryAfter.
func TestReductionAggregatorSilent(t *testing.T) {
	for seed := range uint64(20) {
		c := world(t, 2+int(seed%6), quietConfig())
		c.randomly(seed, clustertest.Faults{})
		size := len(c.hosts)
		during := c.reduceScatter(0, 400).on(upTo(size)...)
		for range c.Rand.IntN(100 * size) {
			c.Step()
		}
		victim := c.Rand.IntN(len(c.sums))
		c.sums[victim].dead = true
		ended := c.ended(during)
		c.finish()
		c.allRight(during)
		if ended {
			continue
		}
		if n := during.fellBack(); n != size {
			t.Fatalf("seed %d: %d of %d ranks know that the call did without aggregators", seed, n, size)
		}
		heard := func() (n uint64) {
			for _, a := range c.sums {
				n += a.session.Stats().Contributions
			}
			return n
		}
		before := heard()
		next := c.plan(0, p2p.Allreduce, "inc", 20).on(upTo(size)...)
		c.finish()
		c.allRight(next)
		if heard() != before || next.fellBack() != size {
			t.Fatalf("seed %d: a call uses aggregators that did not answer a moment ago", seed)
		}
		c.restartAggregator(victim)
		c.RunFor(inc.RetryAfter)
		again := c.reduceScatter(0, 20).on(upTo(size)...)
		c.finish()
		c.allRight(again)
		if heard() == before || again.fellBack() > 0 {
			t.Fatalf("seed %d: the aggregators are not used again: %q", seed, again.shares[0].fallback)
		}
	}
}

// An aggregator forgets everything. Retries rebuild its slots.
func TestReductionAggregatorRestarts(t *testing.T) {
	fellBack := 0
	for seed := range uint64(40) {
		c := world(t, 2+int(seed%6), quietConfig())
		c.randomly(seed, clustertest.Faults{})
		k := c.reduceScatter(0, 200).on(upTo(len(c.hosts))...)
		for range c.Rand.IntN(200 * len(c.hosts)) {
			c.Step()
		}
		c.restartAggregator(c.Rand.IntN(len(c.sums)))
		c.finish()
		c.allRight(k)
		fellBack += k.fellBack()
	}
	if fellBack > 0 {
		t.Errorf("%d ranks did without aggregators, which had only been restarted", fellBack)
	}
}

// A rank dies in each phase of a reduction. All others return, and blame it.
func TestReductionRankDies(t *testing.T) {
	reached := map[step.Phase]int{}
	for seed := range uint64(120) {
		cfg := quietConfig()
		c := world(t, 2+int(seed%6), cfg)
		c.randomly(seed, clustertest.Faults{Loss: 0.1 * float64(seed%2)})
		if seed%3 == 0 {
			c.tellAggregation(inc.Aggregation{Why: "there is none"})
		}
		dead := c.Rand.IntN(len(c.hosts))
		phase := []step.Phase{step.Barrier, step.Transfer, step.Fetch, step.Handshake}[seed%4]
		k := c.plan(0, []p2p.Kind{p2p.ReduceScatter, p2p.Allreduce}[seed/4%2], "inc", 60).on(upTo(len(c.hosts))...)
		in := func() bool {
			st := c.hosts[dead].node.comms[0].find(0)
			return st != nil && st.op.Phase() == phase
		}
		for range 100000 {
			if in() || c.ended(k) || !c.Step() {
				break
			}
		}
		if in() {
			reached[phase]++
		}
		c.killSeenBy(dead, upTo(len(c.hosts)))
		c.finish()
		k.failures(Lost, dead)
		after := c.reduceScatter(0, 10).on(without(len(c.hosts), dead)...)
		c.run()
		if n := after.failures(Lost, dead); n != len(c.hosts)-1 {
			t.Fatalf("seed %d: only %d ranks refuse the next call", seed, n)
		}
	}
	for _, phase := range []step.Phase{step.Barrier, step.Transfer, step.Fetch, step.Handshake} {
		if reached[phase] < 5 {
			t.Errorf("only %d ranks died in phase %v: %v", reached[phase], phase, reached)
		}
	}
}

// A caller gives up at any moment. All ranks return, and blame it.
func TestReductionCancelled(t *testing.T) {
	for seed := range uint64(60) {
		c := world(t, 2+int(seed%6), quietConfig())
		c.comm(1, upTo(len(c.hosts))...)
		c.randomly(seed, clustertest.Faults{Loss: 0.05 * float64(seed%2)})
		by := c.Rand.IntN(len(c.hosts))
		k, held := c.reduceScatter(0, 100), c.reduceScatter(0, 50)
		other := c.reduceScatter(1, 100).on(upTo(len(c.hosts))...)
		k.on(upTo(len(c.hosts))...)
		held.on(upTo(len(c.hosts))...)
		for range c.Rand.IntN(150 * len(c.hosts)) {
			c.Step()
		}
		c.hurt = true
		if err := c.hosts[by].node.Cancel(0); err != nil {
			t.Fatal(err)
		}
		c.hosts[by].act()
		c.finish()
		k.failures(Cancelled, by)
		held.failures(Cancelled, by)
		c.allRight(other)
	}
}

// A call that needs longer than its deadline fails on all ranks, and blames no rank if all of them have called.
func TestReductionDeadline(t *testing.T) {
	cfg := quietConfig()
	cfg.Patience.Silent = 100 * step.Second
	c := world(t, 4, cfg)
	for _, a := range c.sums {
		a.dead = true
	}
	k := c.reduceScatter(0, 100)
	k.limit = func(rank int) step.Time { return []step.Time{0, 5 * ms, 0, 0}[rank] }
	k.on(upTo(4)...)
	c.finish()
	c.allFailed(NoRank, []Reason{Deadline}, k)
}

// The time that a call waits for its turn, and what it waits for, are visible.
func TestReductionWaitsForTheRankThatHasNotCalled(t *testing.T) {
	c := planWorld(t, 6, 1, quietConfig())
	k := c.reduceScatter(0, 10)
	k.on(without(6, 4)...)
	c.run()
	at, seen := 0, []int{}
	for range 8 {
		st := c.hosts[at].node.comms[0].find(0)
		if st == nil {
			break
		}
		at = st.op.WaitingOn()
		seen = append(seen, at)
	}
	if at != 4 {
		t.Fatalf("rank 0 waits for %v, want rank 4 in the end", seen)
	}
	k.on(4)
	c.run()
	c.allRight(k)
	if s := c.hosts[0].node.Stats(); slices.Max([]uint64{s.Foreign, s.Late}) > 0 {
		t.Errorf("counters: %+v", s)
	}
}

// One rank makes another call. Some rank notices, wherever it is in the control tree, and all learn of it.
func TestReductionMismatch(t *testing.T) {
	for what, other := range map[string]func(c *cluster) *job{
		"another size":   func(c *cluster) *job { return c.reduceScatter(0, 11) },
		"point to point": func(c *cluster) *job { return c.plan(0, p2p.ReduceScatter, "ring", 10) },
		"a barrier":      func(c *cluster) *job { return c.plan(0, p2p.Barrier, "dissemination", 0) },
		"multicast":      func(c *cluster) *job { return c.job(0, allgather(len(c.hosts), 10, 4)) },
	} {
		for _, size := range []int{2, 3, 5, 8} {
			for odd := range size {
				c := planWorld(t, size, 1, quietConfig())
				k, o := c.reduceScatter(0, 10), other(c)
				o.on(odd)
				k.on(without(size, odd)...)
				c.hurt = true // pieces of the other call may be refused
				c.run()
				if n := k.failures(Mismatch, upTo(size)...) + o.failures(Mismatch, upTo(size)...); n != size {
					t.Fatalf("%s: only %d of %d ranks find that rank %d made another call", what, n, size, odd)
				}
			}
		}
	}
}
