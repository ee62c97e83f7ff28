package node

import (
	"testing"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/step"
)

// While aggregators keep failing, a communicator tries them at growing intervals. Others go on, and a success resets
// the interval.
func TestReductionRetryBacksOff(t *testing.T) {
	c := planWorld(t, 4, 1, quietConfig())
	c.comm(1, upTo(4)...)
	heard := func() (n uint64) {
		for _, a := range c.sums {
			n += a.session.Stats().Contributions
		}
		return n
	}
	// held returns for how long no reduction of communicator 0 uses the aggregators after one has failed.
	held := func() (after step.Time) {
		k := c.reduceScatter(0, 100).all()
		c.finish()
		c.allRight(k)
		for _, h := range c.hosts {
			if at := h.node.comms[0].retryAt; at > 0 {
				after = max(after, at-c.Now)
			}
			if h.node.comms[1].retryAt > 0 {
				t.Fatal("another communicator does not use aggregators")
			}
		}
		return after
	}
	top := len(c.sums) - 1
	c.sums[top].dead = true
	want := inc.RetryAfter
	for range 6 {
		if got := held(); got > want || got < want*9/10 {
			t.Fatalf("tries again after %d ms, want %d", got/ms, want/ms)
		}
		before := heard()
		if k := c.reduceScatter(0, 20).all(); k.fellBack() != 4 || heard() != before {
			t.Fatal("a call uses aggregators that did not answer a moment ago")
		}
		c.RunFor(want + ms)
		want = min(2*want, inc.MaxRetryAfter)
	}
	c.restartAggregator(top)
	c.sums[top].dead = false
	if got := held(); got != 0 {
		t.Fatalf("the aggregators are back, but a call holds off for %d ms", got/ms)
	}
	c.sums[top].dead = true
	if got := held(); got > inc.RetryAfter || got == 0 {
		t.Errorf("after a success, it tries again after %d ms", got/ms)
	}
}

// A smaller window before a rank has reported the old one is no reason to do without aggregators.
func TestReductionWindowShrinks(t *testing.T) {
	c := planWorld(t, 4, 1, quietConfig())
	k := c.reduceScatter(0, 50)
	k.on(0, 1, 2)
	h := c.hosts[0]
	h.node.SetAggregation(c.Now, inc.Aggregation{Window: incWindow - 2})
	h.act()
	k.on(3)
	c.finish()
	c.allRight(k)
	if n := k.fellBack(); n > 0 {
		t.Errorf("%d ranks did without aggregators: %q", n, k.shares[0].fallback)
	}
}

// Aggregators that fail when a rank has all its sums are no reason to report a fallback.
func TestReductionLostInHandshake(t *testing.T) {
	c := planWorld(t, 4, 1, quietConfig())
	k := c.reduceScatter(0, 50)
	k.on(upTo(4)...)
	have := func() bool {
		for _, h := range c.hosts {
			if st := h.node.comms[0].find(0); st == nil || st.op.Phase() != step.Handshake {
				return false
			}
		}
		return true
	}
	for !have() && c.Step() {
	}
	if !have() {
		t.Fatal("no moment at which all ranks are in the handshake")
	}
	c.tellAggregation(inc.Aggregation{Why: "the aggregator is gone"})
	c.finish()
	c.allRight(k)
	if n := k.fellBack(); n > 0 {
		t.Errorf("%d ranks report a fallback: %q", n, k.shares[0].fallback)
	}
}

// The deadline of a reduction that waits for its turn blames the rank that holds up the reduction before it.
func TestDeadlineOfAHeldReduction(t *testing.T) {
	c := planWorld(t, 6, 1, quietConfig())
	gather, first, second := c.job(0, allgather(6, 10, 4)), c.reduceScatter(0, 10), c.reduceScatter(0, 10)
	second.limit = func(rank int) step.Time { return []step.Time{5 * ms, 0, 0, 0, 0, 0}[rank] }
	for r := range 6 {
		gather.on(r)
		if r != 4 {
			first.on(r)
			second.on(r)
		}
	}
	c.finish()
	if n := second.failures(Deadline, 4); n != 5 {
		t.Errorf("%d ranks blame rank 4", n)
	}
}

// loseSums makes the first sum of rank 0 never arrive.
func (c *cluster) loseSums() {
	h := c.hosts[0]
	h.results.Fate = func(g sumGram) clustertest.Fate {
		if r := h.openRound(g.opKey); g.Kind == inc.Result && r != nil {
			if _, nth, _, _ := r.red.Layout.At(g.Place); nth == 0 {
				return clustertest.Lose
			}
		}
		return clustertest.Deliver
	}
}

// One chunk that had to be fetched says nothing about the aggregators, however few chunks the block has. If it happens
// time and again, they do not work.
func TestReductionOfFewChunks(t *testing.T) {
	for _, block := range []int64{4, 8, 12, 30, 100} { // up to 13 chunks
		c := planWorld(t, 4, 1, quietConfig())
		reduce := func() *job {
			k := c.reduceScatter(0, block).all()
			c.finish()
			c.allRight(k)
			return k
		}
		reduce()
		c.loseSums()
		k := reduce()
		if n := c.hosts[0].node.Stats().Repaired; n != 1 {
			t.Fatalf("blocks of %d bytes: %d chunks were fetched, want 1", block, n)
		}
		if c.hosts[0].node.comms[0].retryAt > 0 || k.fellBack() > 0 {
			t.Errorf("blocks of %d bytes: the aggregators are not used after one fetched chunk: %q", block, k.shares[0].fallback)
		}
		stopped := 0
		for range 3 {
			stopped += reduce().fellBack()
		}
		if few := block <= 30; few && stopped == 0 {
			t.Errorf("blocks of %d bytes: the aggregators are still used after four fetched chunks", block)
		}
	}
}
