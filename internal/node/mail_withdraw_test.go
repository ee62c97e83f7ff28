package node

import (
	"testing"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

// A Send, a Recv and the callers' Withdraw in every interleaving. Either the message arrives, or it does
// not and each call whose caller gave up is withdrawn, or the communicator breaks because a caller gave up.
func TestMailWithdrawEveryInterleaving(t *testing.T) { everyWithdrawal(t, false) }

// The same if the calls pass their deadlines.
func TestMailDeadlineEveryInterleaving(t *testing.T) { everyWithdrawal(t, true) }

func everyWithdrawal(t *testing.T, expires bool) {
	t.Helper()
	for _, x := range []struct {
		bytes, room      int
		sender, receiver bool // which of the callers give up
	}{
		{1, 1, true, false},
		{1, 1, false, true},
		{1, 1, true, true},
		{EagerMail + 1, EagerMail + 1, true, false},
		{EagerMail + 1, EagerMail + 1, false, true},
		{EagerMail + 1, EagerMail + 1, true, true},
		{2, 1, true, false},
		{2, 1, false, true},
		{EagerMail + 1, 1, true, false},
		{EagerMail + 1, 1, true, true},
	} {
		var outcomes [3]int // arrived, withdrawn, broken
		runs := clustertest.Exhaust(func(choose func(int) int) {
			c := world(t, 2, quietConfig())
			c.Order = clustertest.Chosen(choose)
			from, to := c.hosts[0], c.hosts[1]
			s, r := from.parcel(0, wire.Send, 1, 5, x.bytes), to.parcel(0, wire.Recv, 0, 5, x.room)
			for _, p := range []*parcel{s, r} {
				p.expires = expires
				p.h.posts.Push(func() {
					p.h.post(p)
					if p == s && x.sender || p == r && x.receiver {
						p.h.quits.Push(p)
					}
				})
			}
			c.run()
			outcomes[c.outcome(s, r, x.sender, x.receiver)]++
		})
		eager := x.bytes <= EagerMail
		if outcomes[0] == 0 || outcomes[1] == 0 || (outcomes[2] == 0) != (eager || x.room < x.bytes) {
			t.Errorf("%+v: %d runs arrived, were withdrawn or broke: %v", x, runs, outcomes)
		}
	}
}

// outcome checks the end of a Send and a Recv: 0 if the message arrived, 1 if a caller withdrew it, and 2 if
// the communicator broke. A call without a partner is withdrawn in the end.
func (c *cluster) outcome(s, r *parcel, sender, receiver bool) int {
	if c.hosts[0].node.comms[0].broken != nil {
		for _, h := range c.hosts { // both may break it at the same time
			v := h.node.comms[0].broken
			byCaller := v != nil && v.reason == Cancelled && (v.culprit == 0 && sender || v.culprit == 1 && receiver)
			byDeadline := v != nil && v.reason == Deadline && v.culprit == NoRank
			if s.expires && !byDeadline || !s.expires && !byCaller {
				c.Failf("rank %d: %+v", h.ID, v)
			}
		}
		verdict := c.hosts[0].node.comms[0].broken
		for _, p := range []*parcel{s, r} {
			if !p.ended || p.err != nil && p.err.Reason != verdict.reason && !p.err.Reason.OneCall() {
				c.Failf("the communicator is broken: %v", p)
			}
		}
		return 2
	}
	if s.taken != nil {
		if !s.ended || s.err != nil || r != s.taken || !r.ended {
			c.Failf("%v is received by %v", s, r)
		}
		c.mailboxEmpty(0)
		c.mailSettled()
		return 0
	}
	for p, gaveUp := range map[*parcel]bool{s: sender, r: receiver} {
		if gaveUp && !p.ended {
			c.Failf("%v hangs", p)
		}
		if !p.ended {
			c.withdrawAll([]*parcel{p})
		}
	}
	c.run()
	for _, p := range []*parcel{s, r} {
		// An eager message that was not withdrawn in time waits for another receive.
		if !p.ended || p.err != nil && p.err.Reason != Withdrawn && p.err.Reason != Unmatched {
			c.Failf("%v", p)
		}
	}
	c.mailSettled()
	c.takeRest()
	return 1
}

// A withdrawn call affects no other: the calls before and after it match as if it had not been there.
func TestMailWithdrawAffectsNoOther(t *testing.T) {
	for seed := range uint64(100) {
		c := mailWorld(t, 2, seed)
		from, to := c.hosts[0], c.hosts[1]
		var sends, recvs []*parcel
		n := EagerMail + 1 + int(seed%3)
		for range 3 {
			sends = append(sends, from.send(0, 1, 1, n))
		}
		if seed%2 == 0 {
			c.run()
		}
		from.quits.Push(sends[1])
		c.run()
		c.mailFailed(Withdrawn, NoRank, sends[1])
		for range 3 {
			recvs = append(recvs, to.recv(0, AnyRank, 1, n))
		}
		c.settle()
		c.mailEnded(sends[0], sends[2], recvs[0], recvs[1])
		to.quits.Push(recvs[2])
		c.run()
		c.mailFailed(Withdrawn, NoRank, recvs[2])
		c.mailboxEmpty(0)
		c.allRight(c.plan(0, p2p.Allreduce, "ring", 9).all())
	}
}

// A Send that is withdrawn before its buffer is ready is unknown to other ranks. It costs no credit.
func TestMailWithdrawBeforeTheOffer(t *testing.T) {
	for _, n := range []int{5, EagerMail + 1} {
		c := mailWorld(t, 2, 1)
		h := c.hosts[0]
		h.mailOpen.Held = true
		s := h.send(0, 1, 1, n)
		h.withdraw(s)
		h.act()
		c.mailFailed(Withdrawn, NoRank, s)
		h.mailOpen.Held = false
		c.settle()
		c.mailboxEmpty(0)
		if h.sends[wire.MsgOffer] != 0 {
			t.Errorf("%d bytes: the message was offered", n)
		}
	}
}

// RemoveComm lets calls under way continue, and then forgets the communicator.
func TestMailRemove(t *testing.T) {
	for seed := range uint64(60) {
		c := mailWorld(t, 2, seed)
		c.comm(7, 1, 0)
		n := mailSizes[seed%5]
		s, r := c.hosts[0].send(7, 0, 1, n), c.hosts[1].recv(7, 1, 1, n)
		c.Drain(int(seed % 7))
		c.remove(7, 0, 1)
		c.run()
		c.mailEnded(s, r)
		c.forgotten(7)
	}
}

// A rank whose Send waits for a rank that has closed the communicator learns it. The sender of an eager
// message does not wait.
func TestMailSendToWhoHasLeft(t *testing.T) {
	for seed := range uint64(30) {
		c := mailWorld(t, 3, seed)
		c.comm(7, 0, 1, 2)
		c.hurt = true // no rank wants the data
		small := c.hosts[0].send(7, 1, 1, 9)
		if seed%4 < 2 {
			c.run()
		}
		if seed%2 == 0 {
			c.remove(7, 1)
		}
		c.run()
		s := c.hosts[0].send(7, 1, 1, EagerMail+1)
		if seed%3 == 0 {
			c.run()
		}
		if seed%2 == 1 {
			c.remove(7, 1)
		}
		c.run()
		c.mailEnded(small)
		c.mailFailed(Left, 1, s)
	}
}

// A Recv from a rank that has closed the communicator ends, and so do calls of other ranks on it. A message
// that the rank has sent before is received.
func TestMailRecvFromWhoHasLeft(t *testing.T) {
	for seed := range uint64(30) {
		c := planWorld(t, 3, seed, testConfig())
		c.comm(7, 2, 0, 1)
		r, r2 := c.hosts[0].recv(7, 0, 1, 9), c.hosts[0].recv(7, 0, 1, 9)
		s := c.hosts[2].send(7, 1, 1, 9)
		if seed%2 == 0 {
			c.RunFor(3 * c.cfg.Timeout)
			c.mailEnded(s, r)
		}
		c.remove(7, 2)
		c.RunFor(3 * c.cfg.Timeout)
		c.mailEnded(s, r)
		c.mailFailed(Left, 2, r2)
	}
}

// A Recv from any rank waits as long as one other rank is there, and ends once all have closed the communicator.
func TestMailRecvFromAnyWhoHasLeft(t *testing.T) {
	for _, earlier := range []bool{true, false} {
		c := planWorld(t, 4, 1, testConfig())
		c.comm(7, 2, 0, 3, 1)
		if earlier {
			c.remove(7, 0)
			c.remove(7, 1)
		}
		r := c.hosts[3].recv(7, AnyRank, 1, 9)
		c.RunFor(20 * c.cfg.Timeout)
		if r.ended || c.hosts[3].sends[wire.MsgProbeWait] > 24 {
			t.Fatalf("%v after %d probes, while a rank may still send", r, c.hosts[3].sends[wire.MsgProbeWait])
		}
		if !earlier {
			c.remove(7, 0)
			c.remove(7, 1)
		}
		c.remove(7, 2)
		c.RunFor(2 * c.cfg.Timeout)
		if !r.ended || r.err == nil || r.err.Reason != Left || r.err.Culprit == 3 || r.err.Culprit < 0 {
			t.Errorf("%v: ended %v, %v; want an error that names a rank that has left", r, r.ended, r.err)
		}
	}
}

// A Recv may wait for any time for a rank that is there.
func TestMailRecvWaits(t *testing.T) {
	c := planWorld(t, 2, 1, testConfig())
	r := c.hosts[0].recv(0, 1, 1, 9)
	c.RunFor(20 * c.cfg.Timeout)
	if r.ended || c.hosts[0].sends[wire.MsgProbeWait] > 21 || c.hosts[1].sends[wire.MsgWaitState] != 0 {
		t.Fatalf("%v; %d probes", r, c.hosts[0].sends[wire.MsgProbeWait])
	}
	s := c.hosts[1].send(0, 0, 1, 9)
	c.RunFor(ms)
	c.mailEnded(s, r)
}

// The receiver has accepted a message when its sender gives up. Nothing but the end of the communicator
// ends the Recv then, and its error names the sender.
func TestMailWithdrawOfAcceptedSend(t *testing.T) {
	for _, answered := range []bool{false, true} {
		c := mailWorld(t, 3, 1)
		from, to := c.hosts[0], c.hosts[1]
		s := from.send(0, 1, 1, EagerMail+1)
		c.run()
		from.inbox[1].Held, from.puts.Held = !answered, true
		r := to.recv(0, 0, 1, EagerMail+1)
		bystander := c.hosts[2].recv(0, 0, 9, 1)
		c.run()
		if from.withdraw(s); s.forced != answered {
			t.Fatalf("answered %v: the caller had to break the communicator: %v", answered, s.forced)
		}
		from.act()
		c.hurt = true
		from.inbox[1].Held, from.puts.Held = false, false
		c.run()
		c.mailFailed(Cancelled, 0, s, r, bystander)
	}
}

// A receive whose message is on its way cannot be taken back if the sender counts on it. If the message is
// eager, the receive ends as if nothing had happened.
func TestMailWithdrawOfMatchedRecv(t *testing.T) {
	for _, n := range []int{5, EagerMail + 1} {
		c := mailWorld(t, 2, 1)
		from, to := c.hosts[0], c.hosts[1]
		from.puts.Held = true
		s, r := from.send(0, 1, 1, n), to.recv(0, 0, 1, n)
		c.run()
		to.withdraw(r)
		to.act()
		from.puts.Held = false
		c.run()
		if n <= EagerMail {
			c.mailEnded(s, r)
			c.mailboxEmpty(0)
		} else {
			c.mailFailed(Cancelled, 1, s, r)
		}
	}
}
