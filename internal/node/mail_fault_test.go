package node

import (
	"testing"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

// Messages that no correct rank sends break the communicator, and name their sender.
func TestMailProtocolViolations(t *testing.T) {
	offer := func(number uint64, bytes uint64, eager bool) wire.Msg {
		return wire.Msg{Kind: wire.MsgOffer, Seq: wire.MailKey(1, number), Tag: 1, Bytes: bytes, Flag: eager}
	}
	var tooMany []wire.Msg
	for i := range uint64(MailCredit/(EagerMail+MailCost) + 1) {
		tooMany = append(tooMany, offer(i+1, EagerMail, true))
	}
	other := offer(1, 5, false)
	other.Seq = wire.MailKey(2, 1)
	for what, msgs := range map[string][]wire.Msg{
		"no key of a message":       {{Kind: wire.MsgOffer, Seq: 5}},
		"the key of another sender": {other},
		"the same offer again":      {offer(1, 5, false), offer(1, 5, false)},
		"an offer out of order":     {offer(2, 5, false), offer(1, 5, false)},
		"a negative size":           {offer(1, 1<<63, false)},
		"a negative eager size":     {offer(1, 1<<64-1, true)},
		"too large to be eager":     {offer(1, EagerMail+1, true)},
		"too much eager data":       tooMany,
		"too much credit":           {{Kind: wire.MsgCredit, Bytes: 1}},
		"far too much credit":       {{Kind: wire.MsgCredit, Bytes: 1<<64 - 1}},
		"data cannot be taken back": {offer(1, 5, true), {Kind: wire.MsgWithdraw, Seq: wire.MailKey(1, 1)}},
	} {
		c := mailWorld(t, 3, 1)
		c.hurt = true
		r := c.hosts[0].recv(0, 2, 7, 5)
		s := c.hosts[0].send(0, 2, 7, EagerMail+1)
		for i := range msgs {
			c.hosts[0].node.Message(c.Now, 1, &msgs[i])
			c.hosts[0].act()
		}
		c.run()
		for _, h := range c.hosts {
			if v := h.node.comms[0].broken; v == nil || v.culprit != 1 || v.reason != Protocol {
				t.Errorf("%s: rank %d: %+v", what, h.ID, v)
			}
		}
		c.mailFailed(Protocol, 1, r, s)
	}
}

// A message that belongs to no Send is counted, and has no effect.
func TestMailStale(t *testing.T) {
	c := mailWorld(t, 3, 1)
	n := c.hosts[0].node
	c.hosts[0].mailOpen.Held = true
	s := c.hosts[0].send(0, 1, 7, EagerMail+1)
	key := wire.MailKey(0, 1)
	var stale uint64
	try := func(what string, from int, m wire.Msg) {
		t.Helper()
		n.Message(c.Now, from, &m)
		if stale++; len(n.Actions()) > 0 || n.Stats().Stale != stale {
			t.Errorf("%s: it has an effect, or is not counted", what)
		}
	}
	kinds := []wire.MsgKind{wire.MsgAccept, wire.MsgDiscard, wire.MsgWithdrawn}
	for _, kind := range kinds {
		try("not offered yet", 1, wire.Msg{Kind: kind, Seq: key})
	}
	c.hosts[0].mailOpen.Held = false
	c.run()
	for _, kind := range kinds {
		try("another rank", 2, wire.Msg{Kind: kind, Seq: key})
		try("no such message", 1, wire.Msg{Kind: kind, Seq: wire.MailKey(0, 2)})
		try("a message of the peer", 1, wire.Msg{Kind: kind, Seq: wire.MailKey(1, 1)})
		try("a collective", 1, wire.Msg{Kind: kind})
	}
	n.Message(c.Now, 1, &wire.Msg{Kind: wire.MsgWithdrawn, Seq: key}) // not asked for
	for _, kind := range []wire.MsgKind{
		wire.MsgReady, wire.MsgFinal, wire.MsgAllSent, wire.MsgProbeWait, wire.MsgWaitState,
	} {
		n.Message(c.Now, 1, &wire.Msg{Kind: kind, Seq: key})
		n.Message(c.Now, 1, &wire.Msg{Kind: kind, Seq: wire.MailKey(1, 3)})
	}
	r := c.hosts[1].recv(0, 0, 7, EagerMail+1)
	c.settle()
	c.mailEnded(s, r)
	c.allRight(c.plan(0, p2p.Barrier, "dissemination", 0).all())
}

// A rank keeps the data of eager messages only as far as their sender has credit, also if the data comes
// before the offer.
func TestMailEarlyDataIsLimited(t *testing.T) {
	c := mailWorld(t, 2, 1)
	n := c.hosts[0].node
	kept := 0
	for i := range uint64(3 * MailCredit / MailCost) {
		if n.Early(1, 0, wire.MailKey(1, i+1), 0) {
			kept++
		}
	}
	if kept != MailCredit/MailCost {
		t.Errorf("%d empty messages are kept, want %d", kept, MailCredit/MailCost)
	}
	for what, early := range map[string]bool{
		"one more":        n.Early(1, 0, wire.MailKey(1, 1<<30), 0),
		"another length":  n.Early(1, 0, wire.MailKey(1, 1), 1),
		"too long":        n.Early(1, 0, wire.MailKey(1, 1), EagerMail+1),
		"another sender":  n.Early(1, 0, wire.MailKey(0, 1), 0),
		"no member":       n.Early(5, 0, wire.MailKey(5, 1), 0),
		"no communicator": n.Early(1, 9, wire.MailKey(1, 1), 0),
		"a negative rank": n.Early(-1, 0, wire.MailKey(1, 1), 0),
	} {
		if early {
			t.Errorf("%s: kept", what)
		}
	}
	if !n.Early(1, 0, wire.MailKey(1, 1), 0) {
		t.Error("the same data is not kept when the driver asks again")
	}
	// The offer of data that has come must be eager and of the same size.
	n.Message(c.Now, 1, &wire.Msg{Kind: wire.MsgOffer, Seq: wire.MailKey(1, 1), Flag: true})
	if n.comms[0].broken != nil || n.comms[0].mail.peers[1].ahead != MailCredit-MailCost {
		t.Errorf("%+v, %+v", n.comms[0].broken, n.comms[0].mail.peers[1])
	}
	n.Message(c.Now, 1, &wire.Msg{Kind: wire.MsgOffer, Seq: wire.MailKey(1, 2), Bytes: 1})
	if v := n.comms[0].broken; v == nil || v.culprit != 1 || v.reason != Protocol {
		t.Errorf("data without an eager offer: %+v", v)
	}
}

// Eager messages do not depend on the size of eager collectives.
func TestMailEagerWithoutEagerCalls(t *testing.T) {
	for _, eager := range []int64{0, 10, EagerLimit} {
		cfg := quietConfig()
		cfg.Eager = eager
		c := planWorld(t, 2, 1, cfg)
		s := c.hosts[0].send(0, 1, 2, EagerMail)
		c.run()
		r := c.hosts[1].recv(0, 0, 2, EagerMail)
		c.settle()
		c.mailEnded(s, r)
	}
}

// Data for a message that was received, or that no receive has accepted, is not taken.
func TestMailForeignData(t *testing.T) {
	c := mailWorld(t, 3, 1)
	c.hosts[0].recv(0, 1, 2, 100)
	c.hosts[1].send(0, 0, 2, 100)
	c.hosts[1].send(0, 0, 2, EagerMail+1)
	c.run()
	for what, p := range map[string]piece{
		"received":     {opKey{0, wire.MailKey(1, 1)}, 1, 0, make([]byte, 100)},
		"not accepted": {opKey{0, wire.MailKey(1, 2)}, 1, 0, make([]byte, 100)},
	} {
		if c.hosts[0].takes(p) || c.hosts[0].node.Early(1, 0, p.seq, 100) {
			t.Errorf("%s: taken or kept", what)
		}
	}
	r := c.hosts[0].recv(0, 1, 2, EagerMail+1)
	c.hosts[0].pieces[1].Held = true
	c.run()
	for what, p := range map[string]piece{
		"another rank":   {opKey{0, wire.MailKey(1, 2)}, 2, 0, make([]byte, EagerMail+1)},
		"another length": {opKey{0, wire.MailKey(1, 2)}, 1, 0, make([]byte, 100)},
		"another piece":  {opKey{0, wire.MailKey(1, 2)}, 1, 1, make([]byte, EagerMail+1)},
	} {
		if c.hosts[0].takes(p) {
			t.Errorf("%s: taken", what)
		}
	}
	c.hosts[0].pieces[1].Held = false
	c.settle()
	c.mailEnded(r)
}
