package node

import (
	"testing"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/wire"
)

// drawMail queues sends and receives on all ranks, which make them in that order at any time. Messages and
// receives need not fit.
func (c *cluster) drawMail(comm uint32, n int, sizes []int) (all []*parcel) {
	members := c.comms[comm]
	for range n {
		at, peer := c.Rand.IntN(len(members)), c.Rand.IntN(len(members)-1)
		if peer >= at {
			peer++
		}
		kind := wire.Send
		size := sizes[c.Rand.IntN(len(sizes))]
		if c.Rand.IntN(2) == 0 {
			kind = wire.Recv
			if size = sizes[len(sizes)-1]; c.Rand.IntN(8) == 0 {
				size = sizes[c.Rand.IntN(len(sizes))]
			}
			if c.Rand.IntN(3) == 0 {
				peer = AnyRank
			}
		}
		h := c.hosts[members[at]]
		x := h.parcel(comm, kind, peer, uint64(c.Rand.IntN(2)), size)
		h.posts.Push(func() { h.post(x) })
		all = append(all, x)
	}
	return all
}

// withdrawAll gives up all calls that have not ended.
func (c *cluster) withdrawAll(all []*parcel) {
	for _, x := range all {
		if !x.ended && !x.h.Dead {
			x.h.quits.Push(x)
		}
	}
}

// sizesFor returns sizes of messages. Large ones are slow, and only some of the runs have them.
func sizesFor(seed uint64) []int {
	if seed%8 == 0 {
		return mailSizes
	}
	return []int{0, 1, 7, 30}
}

// Any sends and receives on overlapping communicators, beside collectives: they match in order, nothing is
// lost or delivered twice, and what has no match can be withdrawn.
func TestMailRandomly(t *testing.T) {
	seeds := uint64(3000)
	if testing.Short() {
		seeds = 300
	}
	for seed := range seeds {
		c := mailWorld(t, 2+int(seed%3), seed)
		if seed%5 == 0 {
			c.Order = clustertest.Newest
		}
		comms := 1
		if len(c.hosts) > 2 {
			c.comm(1, 2, 0)
			comms++
		}
		var all []*parcel
		for range 2 {
			all = append(all, c.drawMail(uint32(c.Rand.IntN(comms)), 15, sizesFor(seed))...)
		}
		var calls []*job
		if seed%4 == 0 {
			calls = c.oneByOne(2, 1)
		}
		c.settle()
		c.allRight(calls...)
		c.withdrawAll(all)
		c.run()
		for _, x := range all {
			if !x.ended || x.forced || x.err != nil && x.err.Reason != Withdrawn && x.err.Reason != Truncated {
				c.Failf("%v: forced %v", x, x.forced)
			}
		}
		c.mailSettled()
		c.takeRest()
	}
}

// takeRest receives the eager messages without a match. Then no rank keeps anything.
func (c *cluster) takeRest() {
	for _, s := range c.mail {
		if s.kind == wire.Send && s.taken == nil && s.err == nil {
			h := c.hosts[c.comms[s.comm][s.peer]]
			from := h.node.comms[s.comm]
			rank, _ := from.rankOf(s.h.ID)
			h.recv(s.comm, rank, s.tag, EagerMail)
		}
	}
	c.settle()
	for id := range c.comms {
		c.mailboxEmpty(id)
	}
	for _, h := range c.hosts {
		if len(h.early) > 0 {
			c.Failf("rank %d keeps data of %d messages", h.ID, len(h.early))
		}
		if !h.Done() {
			c.Failf("rank %d has calls that do not end", h.ID)
		}
	}
}

// Callers give up at any time. A call either ends as if nothing had happened, or is withdrawn and has no
// effect, or its communicator breaks and names a rank whose caller gave up. Nothing hangs.
func TestMailWithdrawRandomly(t *testing.T) {
	seeds := uint64(2000)
	if testing.Short() {
		seeds = 200
	}
	broken := 0
	for seed := range seeds {
		c := mailWorld(t, 2+int(seed%3), seed)
		all := c.drawMail(0, 20, sizesFor(seed))
		quit := map[int]bool{}
		for _, x := range all {
			if c.Rand.IntN(3) == 0 {
				quit[x.h.ID] = true
				x.h.posts.Push(func() { x.h.quits.Push(x) })
			}
		}
		c.run()
		c.withdrawAll(all)
		for _, x := range all {
			if !x.ended {
				quit[x.h.ID] = true
			}
		}
		c.run()
		hurt := false
		for _, x := range all {
			switch {
			case !x.ended:
				c.Failf("%v hangs", x)
			case x.err == nil || x.err.Reason == Truncated:
			case x.err.Reason == Withdrawn:
				if x.taken != nil {
					c.Failf("%v is withdrawn, and received", x)
				}
			case x.err.Reason == Cancelled && quit[x.err.Culprit]:
				hurt = true
			default:
				c.Failf("%v", x)
			}
		}
		if hurt {
			broken++
			continue
		}
		c.mailSettled()
		c.takeRest()
	}
	if broken == 0 || broken == int(seeds) {
		t.Errorf("%d of %d runs broke the communicator", broken, seeds)
	}
}

// A rank dies at any time: all calls of the other members end, and failures name the dead rank. Calls
// made after that fail too.
func TestMailPeerLost(t *testing.T) {
	for seed := range uint64(600) {
		c := mailWorld(t, 3+int(seed%2), seed)
		all := c.drawMail(0, 20, sizesFor(seed))
		dead := c.Rand.IntN(len(c.hosts))
		c.Drain(c.Rand.IntN(120))
		c.killSeenBy(dead, upTo(len(c.hosts)))
		c.run()
		at := (dead + 1) % len(c.hosts)
		h := c.hosts[at]
		all = append(all, h.recv(0, dead, 1, 1), h.recv(0, AnyRank, 1, 1), h.send(0, dead, 1, 1))
		c.run()
		for _, x := range all {
			if x.h.Dead || x.ended && (x.err == nil || x.err.Reason == Truncated) {
				continue
			}
			c.mailFailed(Lost, dead, x)
		}
		for _, h := range c.hosts {
			if n := len(h.node.comms[0].mail.calls.all); n > 0 && !h.Dead {
				c.Failf("rank %d: %d calls are left", h.ID, n)
			}
		}
	}
}

// Abort ends all calls of a communicator, and none of another one.
func TestMailAbort(t *testing.T) {
	for seed := range uint64(300) {
		c := mailWorld(t, 3, seed)
		c.comm(1, 0, 1, 2)
		all := c.drawMail(0, 16, sizesFor(seed))
		s, r := c.hosts[1].send(1, 2, 4, EagerMail+1), c.hosts[2].recv(1, 1, 4, EagerMail+1)
		by := c.Rand.IntN(3)
		c.Drain(c.Rand.IntN(100))
		c.abort(by, 0)
		c.run()
		for _, x := range all {
			if x.ended && (x.err == nil || x.err.Reason == Truncated) {
				continue
			}
			c.mailFailed(Aborted, by, x)
		}
		c.mailEnded(s, r)
		c.remove(0, 0, 1, 2)
		c.forgotten(0)
	}
}
