package node

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/agree"
	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/step"
)

// agreed takes the end of an agreement.
func (h *host) agreed(a *Action) {
	if h.settled == nil {
		h.settled = map[uint64]*Agreed{}
	}
	if h.settled[a.Req] != nil {
		h.c.Failf("rank %d: agreement %d ends twice", h.ID, a.Req)
	}
	h.settled[a.Req] = a.Agreed
	if a.Agreed.ID != 0 {
		h.c.comms[a.Agreed.ID] = a.Agreed.Members
	}
}

// shrink lets a rank come to an agreement.
func (c *cluster) shrink(comm uint32, req uint64, ranks ...int) {
	c.T.Helper()
	for _, r := range ranks {
		h := c.hosts[r]
		if err := h.node.Agree(c.Now, comm, req, uint32(1000+100*req)+uint32(r)); err != nil {
			c.Failf("rank %d: %v", r, err)
		}
		h.act()
	}
}

// agreement waits until an agreement has ended on some ranks, and checks that the outcomes are the same.
func (c *cluster) agreement(req uint64, ranks ...int) *Agreed {
	c.T.Helper()
	c.Until(fmt.Sprintf("agreement %d", req), func() bool {
		return !slices.ContainsFunc(ranks, func(r int) bool { return !c.hosts[r].Dead && c.hosts[r].settled[req] == nil })
	})
	var first *Agreed
	for _, r := range ranks {
		a := c.hosts[r].settled[req]
		switch {
		case c.hosts[r].Dead:
		case first == nil:
			first = a
		case a.ID != first.ID || a.Why != first.Why || !slices.Equal(a.Members, first.Members) || !slices.Equal(a.Ranks,
			first.Ranks):
			c.Failf("agreement %d: rank %d has %+v, another one %+v", req, r, *a, *first)
		}
	}
	return first
}

func without(n int, out ...int) []int {
	return slices.DeleteFunc(upTo(n), func(r int) bool { return slices.Contains(out, r) })
}

// All survivors go on together, whichever deaths each of them knows of.
func TestAgreeAfterDeaths(t *testing.T) {
	for _, dead := range [][]int{{}, {0}, {7}, {3, 4}, {0, 1, 2}, {1, 2, 3, 4, 5, 6, 7}} {
		for _, reset := range []bool{false, true} {
			const p = 8
			c := world(t, p, testConfig())
			j := c.call(0, allgather(p, 10, 4))
			living := without(p, dead...)
			c.kill(reset, dead...)
			c.shrink(0, 1, living...) // before any rank has noticed
			a := c.agreement(1, living...)
			if !slices.Equal(a.Members, living) || a.ID == 0 {
				t.Fatalf("%v died: %+v", dead, *a)
			}
			k := c.call(a.ID, allgather(len(living), 30, 4))
			c.finish()
			c.allRight(k)
			c.onlyBlame(dead, j)
		}
	}
}

// An abort excludes no rank. The old communicator stays broken; the new one works and can be shrunk
// again.
func TestAgreeAfterAbort(t *testing.T) {
	const p = 5
	c := world(t, p, testConfig())
	c.abort(2, 0)
	comm := uint32(0)
	for req := uint64(1); req < 4; req++ {
		c.shrink(comm, req, upTo(p)...)
		a := c.agreement(req, upTo(p)...)
		if len(a.Members) != p {
			t.Fatalf("%+v", *a)
		}
		comm = a.ID
	}
	j := c.call(comm, allgather(p, 30, 4))
	c.finish()
	c.allRight(j)
}

// All ranks name a rank that lives but does not come. When it comes, it learns that it was too late, and
// then all ranks can try again.
func TestAgreeWithoutOne(t *testing.T) {
	const p = 4
	for absent := range p {
		c := world(t, p, testConfig())
		came := without(p, absent)
		start := c.Now
		c.shrink(0, 1, came...)
		a := c.agreement(1, came...)
		if a.Why != agree.Late || !slices.Equal(a.Ranks, []int{absent}) || a.Members != nil {
			t.Fatalf("without rank %d: %+v", absent, *a)
		}
		if took := c.Now - start; took > c.cfg.Timeout+c.cfg.Timeout/2 {
			t.Errorf("it took %d, the timeout is %d", took, c.cfg.Timeout)
		}
		c.shrink(0, 1, absent)
		c.agreement(1, upTo(p)...)
		c.shrink(0, 2, upTo(p)...)
		if a := c.agreement(2, upTo(p)...); len(a.Members) != p {
			t.Fatalf("second attempt: %+v", *a)
		}
	}
}

// A rank that hurries ends the agreement on all ranks.
func TestAgreeHurry(t *testing.T) {
	cfg := testConfig()
	cfg.Deadline = 1000 * step.Second
	c := world(t, 4, cfg)
	c.shrink(0, 1, 1, 3)
	c.RunFor(ms)
	c.hosts[3].node.Hurry(c.Now, 0, 1)
	c.hosts[3].act()
	if a := c.agreement(1, 1, 3); a.Why != agree.Late || !slices.Equal(a.Ranks, []int{0, 2}) {
		t.Fatalf("%+v", *a)
	}
}

// A rank that was stopped for so long that the others went on without it learns that.
func TestAgreeExcluded(t *testing.T) {
	const p = 4
	for out := range p {
		c := world(t, p, testConfig())
		others := without(p, out)
		c.hurt = true
		c.shrink(0, 1, out)
		c.hosts[out].Stopped, c.hosts[out].late = true, true
		c.shrink(0, 1, others...)
		a := c.agreement(1, others...)
		if !slices.Equal(a.Members, others) {
			t.Fatalf("rank %d was stopped: %+v", out, *a)
		}
		c.hosts[out].Stopped = false
		if a := c.agreement(1, out); a.Why != agree.Excluded || !slices.Equal(a.Ranks, []int{out}) {
			t.Fatalf("rank %d was left out and thinks: %+v", out, *a)
		}
	}
}

// Members that have closed the communicator are named at once.
func TestAgreeClosed(t *testing.T) {
	c := newCluster(t, 4, testConfig())
	c.comm(5, 0, 1, 2, 3)
	for _, r := range []int{0, 2} {
		if err := c.hosts[r].node.RemoveComm(c.Now, 5); err != nil {
			t.Fatal(err)
		}
		c.hosts[r].act()
	}
	start := c.Now
	c.shrink(5, 1, 1, 3)
	if a := c.agreement(1, 1, 3); a.Why != agree.Closed || !slices.Equal(a.Ranks, []int{0, 2}) {
		t.Fatalf("%+v", *a)
	}
	if c.Now-start >= c.cfg.Timeout {
		t.Errorf("it took %d", c.Now-start)
	}
}

// Ranks die before and while the survivors agree, with calls under way. In the end the survivors have
// the same members, and can call collectives with them unless one has died since.
func TestAgreeRandomDeaths(t *testing.T) {
	t.Parallel()
	runs := 1500
	if testing.Short() {
		runs = 150
	}
	broken := 0
	for seed := range uint64(runs) {
		rng := rand.New(rand.NewPCG(seed, 3))
		p := 2 + rng.IntN(7)
		cfg := testConfig()
		cfg.Deadline = 1000 * step.Second // all come in time
		c := world(t, p, cfg)
		c.randomly(seed, clustertest.Faults{})
		c.call(0, allgather(p, 10, 4))
		var dead []int
		die := func() {
			if r := rng.IntN(p); len(dead) < p-1 && !slices.Contains(dead, r) {
				dead = append(dead, r)
				c.kill(rng.IntN(2) == 0, r)
			}
		}
		steps := func() {
			for range rng.IntN(200) {
				c.StepBefore(c.Now + 100*ms)
			}
		}
		steps()
		die()
		for _, r := range rng.Perm(p) {
			if !c.hosts[r].Dead {
				c.shrink(0, 1, r)
			}
			steps()
			if rng.IntN(4) == 0 {
				die()
			}
		}
		living := without(p, dead...)
		a := c.agreement(1, living...)
		if a.Why != agree.Agreed {
			t.Fatalf("seed %d: %v died of %d: %+v", seed, dead, p, *a)
		}
		for _, r := range living {
			if !slices.Contains(a.Members, r) {
				t.Fatalf("seed %d: %v died of %d: members %v", seed, dead, p, a.Members)
			}
		}
		if len(a.Members) > len(living) {
			broken++
			continue
		}
		j := c.call(a.ID, allgather(len(living), 30, 4))
		c.finish()
		c.allRight(j)
	}
	t.Logf("%d of %d had a member that died at the end", broken, runs)
}
