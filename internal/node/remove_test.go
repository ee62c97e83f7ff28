package node

import (
	"errors"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

// remove closes a communicator on some ranks.
func (c *cluster) remove(comm uint32, ranks ...int) {
	c.T.Helper()
	for _, r := range ranks {
		if err := c.hosts[r].node.RemoveComm(c.Now, comm); err != nil {
			c.Failf("rank %d: %v", r, err)
		}
		c.hosts[r].act()
	}
}

// forgotten checks that nothing of a communicator is left on any rank.
func (c *cluster) forgotten(comm uint32) {
	c.T.Helper()
	for _, h := range c.hosts {
		n := h.node
		if n.comms[comm] != nil || n.removing != 0 || len(n.order) != len(n.comms) || !slices.Contains(h.removed, comm) {
			c.Failf("rank %d: %d communicators, %d in order, %d to be removed; removed %v",
				h.ID, len(n.comms), len(n.order), n.removing, h.removed)
		}
	}
}

// Calls under way go on; then nothing is left.
func TestRemoveWithCallsUnderWay(t *testing.T) {
	for steps := range 150 {
		const p = 4
		c := world(t, p, testConfig())
		c.comm(7, upTo(p)...)
		j, other := c.call(7, allgather(p, 30, 4)), c.call(0, allgather(p, 20, 4))
		for range steps {
			c.Step()
		}
		c.remove(7, upTo(p)...)
		c.finish()
		c.allRight(j, other)
		c.RunFor(ms)
		c.forgotten(7)
	}
}

// Nothing can be started on it, and it cannot be removed again.
func TestRemovedIsUnknown(t *testing.T) {
	c := newCluster(t, 2, testConfig())
	c.comm(7, 0, 1)
	c.remove(7, 0, 1)
	c.forgotten(7)
	n := c.hosts[0].node
	plan, err := mcast.Plan(allgather(2, 5, 4), c.cfg.Layout)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{n.RemoveComm(c.Now, 7), n.Start(c.Now, 7, 1, plan), n.Agree(c.Now, 7, 2, 9), n.Abort(7)} {
		if !errors.Is(err, ErrComm) {
			t.Errorf("got %v, want ErrComm", err)
		}
	}
}

// A communicator that is broken is removed when its calls have ended.
func TestRemoveBroken(t *testing.T) {
	const p = 3
	c := world(t, p, testConfig())
	c.comm(7, upTo(p)...)
	j := c.call(7, allgather(p, 30, 4))
	for range 10 {
		c.Step()
	}
	c.abort(1, 7)
	c.remove(7, upTo(p)...)
	c.finish()
	c.RunFor(ms)
	for r, s := range j.shares {
		if s.err == nil || s.err.Reason != Aborted {
			t.Errorf("rank %d: %v", r, s.err)
		}
	}
	c.forgotten(7)
}

// A rank that begins a call on a communicator which another rank has closed learns of that. The answers to late
// messages are ignored.
func TestCallOnARemovedCommunicator(t *testing.T) {
	for _, before := range []bool{false, true} { // the call, or the closing
		const p = 3
		c := newCluster(t, p, testConfig())
		c.comm(7, upTo(p)...)
		first := c.call(7, allgather(p, 10, 4))
		c.finish()
		c.allRight(first)
		c.RunFor(ms)
		j := c.job(7, allgather(p, 10, 4))
		if before {
			j.on(0, 2)
			c.RunFor(ms)
		}
		c.remove(7, 1)
		if !before {
			j.on(0, 2)
		}
		c.finish()
		for _, r := range []int{0, 2} {
			if e := j.shares[r].err; e == nil || e.Reason != Left || e.Culprit != 1 {
				t.Errorf("rank %d: %v", r, e)
			}
		}
		h := c.hosts[1]
		stale := h.node.Stats().Stale
		h.node.Message(c.Now, 0, &wire.Msg{Kind: wire.MsgBarrier, Comm: 7, Seq: 0})
		h.node.Message(c.Now, 0, &wire.Msg{Kind: wire.MsgFinal, Comm: 7, Seq: 1})
		h.act()
		c.finish()
		if h.node.Stats().Stale != stale+2 {
			t.Errorf("late messages: %d were stale", h.node.Stats().Stale-stale)
		}
	}
}

// The same for plans and reductions, wherever the rank is that has closed the communicator.
func TestPlanOnARemovedCommunicator(t *testing.T) {
	const p = 5
	for what, call := range map[string]func(c *cluster) *job{
		"point to point": func(c *cluster) *job { return c.plan(7, p2p.Allreduce, "ring", 10) },
		"reduce-scatter": func(c *cluster) *job { return c.reduceScatter(7, 10) },
		"allreduce":      func(c *cluster) *job { return c.plan(7, p2p.Allreduce, "inc", 10) },
	} {
		for closer := range p {
			for _, before := range []bool{false, true} { // the call, or the closing
				c := world(t, p, testConfig())
				c.comm(7, upTo(p)...)
				j := call(c)
				if before {
					j.on(without(p, closer)...)
					c.RunFor(ms)
				}
				c.remove(7, closer)
				if !before {
					j.on(without(p, closer)...)
				}
				c.finish()
				if n := j.failures(Left, closer); n != p-1 {
					t.Errorf("%s, closed by rank %d: only %d of %d ranks learn of it", what, closer, n, p-1)
				}
			}
		}
	}
}

// Making and removing communicators leaves nothing behind.
func TestRemoveManyTimes(t *testing.T) {
	const p = 3
	c := newCluster(t, p, testConfig())
	for id := uint32(1); id <= 500; id++ {
		c.comm(id, upTo(p)...)
		if id%10 == 0 {
			c.call(id, allgather(p, 10, 4))
		}
		if id%7 == 0 {
			c.shrink(id, uint64(id), upTo(p)...)
			a := c.agreement(uint64(id), upTo(p)...)
			c.remove(a.ID, upTo(p)...)
		}
		c.remove(id, upTo(p)...)
		c.finish()
	}
	c.RunFor(ms)
	for _, h := range c.hosts {
		if n := h.node; len(n.comms) != 0 || len(n.order) != 0 || n.removing != 0 {
			t.Errorf("rank %d keeps %d communicators, %d in order", h.ID, len(n.comms), len(n.order))
		}
	}
}

// A verdict that no correct member can have made proves only that its sender is at fault.
func TestAbortIsValidated(t *testing.T) {
	call := wire.Call{Kind: wire.Broadcast}
	for name, m := range map[string]wire.Msg{
		"a rank beyond the world":    {Rank: 99, Reason: uint8(Lost)},
		"far out":                    {Rank: 1 << 31, Reason: uint8(Lost)},
		"no rank is lost":            {Rank: 1<<32 - 1, Reason: uint8(Lost)},
		"no reason":                  {Rank: 1},
		"a reason that there is not": {Rank: 1, Reason: uint8(Cancelled) + 1},
		"corrupt, but not who":       {Rank: 1<<32 - 1, Reason: uint8(Corrupt)},
		"corrupt, one not a member": {
			Rank: 1<<32 - 1, Reason: uint8(Corrupt), Pair: &wire.CallPair{Ranks: [2]uint32{1, 2}},
		},
		"calls of a rank that is not in": {Rank: 1, Reason: uint8(Mismatch), Pair: &wire.CallPair{
			Ranks: [2]uint32{1, 2}, Calls: [2]wire.Call{call, call},
		}},
		"calls, but no mismatch": {Rank: 1, Reason: uint8(Lost), Pair: &wire.CallPair{Ranks: [2]uint32{1, 0}}},
	} {
		c := newCluster(t, 4, testConfig())
		c.comm(3, 0, 1, 3)
		m.Kind, m.Comm = wire.MsgAbort, 3
		c.hosts[0].node.Message(c.Now, 1, &m)
		if v := c.hosts[0].node.comms[3].broken; v == nil || v.culprit != 1 || v.reason != Protocol || v.pair != nil {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// A communicator that is being made breaks with its parent. Its users learn which rank really failed, also
// if that rank is no member, and also if they come later.
func TestDisown(t *testing.T) {
	for _, late := range []bool{false, true} {
		c := world(t, 4, testConfig())
		c.comm(3, 0, 1, 3)
		c.kill(true, 2)
		c.Until("the news", func() bool { return c.learned(2) })
		h := c.hosts[1]
		disown := func() {
			if err := h.node.Disown(c.Now, 3, 0); err != nil {
				t.Fatal(err)
			}
			h.act()
		}
		if late {
			disown()
		}
		j := c.job(3, allgather(3, 5, 4)).on(0, 3)
		c.RunFor(ms)
		if !late {
			disown()
		}
		c.finish()
		c.allFailed(2, []Reason{Lost}, j)
	}
}

// A communicator inherits the verdict of another one unchanged, except for reasons that concern calls of
// the latter. A deadline without a culprit names no rank.
func TestInherit(t *testing.T) {
	pair := &wire.CallPair{Ranks: [2]uint32{1, 2}}
	disown := func(n *Node, comm, parent uint32) error { return n.Disown(0, comm, parent) }
	for name, x := range map[string]struct{ from, want verdict }{
		"lost":             {verdict{2, Lost, 7, nil}, verdict{2, Lost, 0, nil}},
		"deadline":         {verdict{2, Deadline, 7, nil}, verdict{2, Deadline, 0, nil}},
		"no culprit":       {verdict{NoRank, Deadline, 7, nil}, verdict{NoRank, Deadline, 0, nil}},
		"cancelled":        {verdict{2, Cancelled, 0, nil}, verdict{2, Cancelled, 0, nil}},
		"mismatched calls": {verdict{2, Mismatch, 7, pair}, verdict{2, Aborted, 0, nil}},
		"different bytes":  {verdict{NoRank, Corrupt, 7, pair}, verdict{1, Aborted, 0, nil}},
	} {
		for _, how := range []func(*Node, uint32, uint32) error{disown, (*Node).Inherit} {
			c := newCluster(t, 4, testConfig())
			c.comm(0, 0, 1, 2, 3)
			c.comm(3, 0, 1, 3)
			h := c.hosts[1]
			h.node.breakComm(h.node.comms[0], x.from)
			j := c.job(3, allgather(3, 5, 4)).on(0, 3)
			c.RunFor(ms)
			if err := how(h.node, 3, 0); err != nil {
				t.Fatal(err)
			}
			h.act()
			c.finish()
			c.allFailed(x.want.culprit, []Reason{x.want.reason}, j)
			for _, r := range []int{0, 3} {
				if v := c.hosts[r].node.comms[3].broken; *v != x.want {
					t.Errorf("%s: rank %d has %+v, want %+v", name, r, *v, x.want)
				}
			}
		}
	}
}

// Nothing is inherited from a communicator that is whole, nor by one that is broken already.
func TestInheritNothing(t *testing.T) {
	c := newCluster(t, 3, testConfig())
	c.comm(0, 0, 1, 2)
	c.comm(3, 0, 1, 2)
	n := c.hosts[1].node
	if err := n.Inherit(3, 0); err != nil || n.comms[3].broken != nil {
		t.Errorf("inherits %+v, %v", n.comms[3].broken, err)
	}
	c.abort(1, 0)
	n.breakComm(n.comms[3], verdict{culprit: 2, reason: Lost})
	if err := n.Inherit(3, 0); err != nil || n.comms[3].broken.reason != Lost || c.hosts[1].act() {
		t.Errorf("inherits %+v, %v", n.comms[3].broken, err)
	}
	for _, ids := range [][2]uint32{{3, 9}, {9, 0}} {
		if err := n.Inherit(ids[0], ids[1]); !errors.Is(err, ErrComm) {
			t.Errorf("%v: %v", ids, err)
		}
	}
}

// A cancelled call fails on all ranks, which blame the rank that cancelled it.
func TestCancel(t *testing.T) {
	c := world(t, 4, patient(testConfig()))
	c.fate = keepOps(0)
	j := c.call(0, allgather(4, 50, 4))
	c.RunFor(ms)
	if err := c.hosts[2].node.Cancel(0); err != nil {
		t.Fatal(err)
	}
	c.hosts[2].act()
	c.finish()
	c.allFailed(2, []Reason{Cancelled}, j)
}

// The error on each rank shows both calls.
func TestMismatchNamesBothCalls(t *testing.T) {
	const p = 5
	c := world(t, p, testConfig())
	most := c.job(0, allgather(p, 10, 4)).on(0, 1, 2, 4)
	odd := c.job(0, broadcast(p, 2, 77, 4)).on(3)
	c.finish()
	for r := range p {
		s := most.shares[r]
		if r == 3 {
			s = odd.shares[r]
		}
		if s.err == nil || s.err.Reason != Mismatch || s.err.Pair == nil {
			t.Fatalf("rank %d: %v", r, s.err)
		}
		i := slices.Index(s.err.Pair.Ranks[:], 3)
		if i < 0 {
			t.Fatalf("rank %d: %v: rank 3 is not there", r, s.err)
		}
		theirs, ours := s.err.Pair.Calls[i], s.err.Pair.Calls[1-i]
		if theirs.Kind != wire.Broadcast || theirs.Root != 2 || theirs.Bytes != 77 || ours.Kind != wire.Allgather ||
			ours.Bytes != 10*p || ours.Algo.String() != "mcast" {
			t.Errorf("rank %d: %v", r, s.err)
		}
	}
}
