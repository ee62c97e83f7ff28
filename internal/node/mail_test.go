package node

import (
	"errors"
	"testing"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

// mailSizes are around the limits: empty, eager, as large as eager messages can be, and larger.
var mailSizes = []int{0, 1, 100, EagerMail, EagerMail + 1}

// mailWorld is a world for Send and Recv. Any event may happen next.
func mailWorld(t *testing.T, size int, seed uint64) *cluster {
	t.Helper()
	return planWorld(t, size, seed, quietConfig())
}

// settle lets everything happen and checks what must hold then.
func (c *cluster) settle() {
	c.T.Helper()
	c.run()
	c.mailSettled()
}

// A message arrives, whichever of the two calls is first, in any order of events.
func TestMailArrives(t *testing.T) {
	for _, n := range mailSizes {
		for seed := range uint64(40) {
			c := mailWorld(t, 3, seed)
			c.comm(5, 2, 0, 1)
			var s, r *parcel
			post := func() { s = c.hosts[1].send(5, 0, 7, n) }
			if seed%2 == 0 {
				post()
			}
			if seed%4 < 2 {
				c.run()
			}
			from := 2
			if seed%8 < 4 {
				from = AnyRank
			}
			r = c.hosts[2].recv(5, from, 7, n+int(seed%3))
			if seed%2 == 1 {
				post()
			}
			c.settle()
			c.mailEnded(s, r)
			c.mailboxEmpty(5)
			if r.from != 2 || r.size != int64(n) {
				t.Fatalf("%v: %d bytes from rank %d", r, r.size, r.from)
			}
		}
	}
}

// Messages with the same tag are received in order, however large they are. Messages with different tags
// are received in the order of the receives.
func TestMailKeepsOrder(t *testing.T) {
	sizes := []int{EagerMail + 1, 0, 3, EagerMail + 2, 5}
	for seed := range uint64(60) {
		c := mailWorld(t, 2, seed)
		var sends, recvs []*parcel
		for i, n := range sizes {
			sends = append(sends, c.hosts[0].send(0, 1, uint64(i%2), n))
		}
		if seed%2 == 0 {
			c.run()
		}
		for _, tag := range []uint64{1, 0, 0, 1, 0} {
			recvs = append(recvs, c.hosts[1].recv(0, 0, tag, EagerMail+2))
		}
		c.settle()
		c.mailEnded(append(sends, recvs...)...)
		for i, want := range []int{0, EagerMail + 1, 3, EagerMail + 2, 5} {
			if recvs[i].size != int64(want) {
				t.Fatalf("receive %d got %d bytes, want %d", i, recvs[i].size, want)
			}
		}
		c.mailboxEmpty(0)
	}
}

// A receive from any rank takes the offers in the order in which they came.
func TestMailFromAnyRank(t *testing.T) {
	c := mailWorld(t, 4, 1)
	var recvs []*parcel
	for _, from := range []int{2, 0, 3} {
		c.hosts[from].send(0, 1, 9, from)
		c.run()
	}
	for range 3 {
		recvs = append(recvs, c.hosts[1].recv(0, AnyRank, 9, 10))
	}
	c.settle()
	c.mailEnded(recvs...)
	for i, from := range []int{2, 0, 3} {
		if recvs[i].from != from {
			t.Errorf("receive %d took the message of rank %d, want %d", i, recvs[i].from, from)
		}
	}
	c.mailboxEmpty(0)
}

// A message that is too long is an error of the receive only. The next message arrives.
func TestMailTooLong(t *testing.T) {
	for _, n := range []int{1, EagerMail, EagerMail + 1} {
		for seed := range uint64(40) {
			c := mailWorld(t, 2, seed)
			var long, next, bad, good *parcel
			send := func() {
				long, next = c.hosts[0].send(0, 1, 1, n), c.hosts[0].send(0, 1, 1, 0)
			}
			recv := func() {
				bad, good = c.hosts[1].recv(0, 0, 1, n-1), c.hosts[1].recv(0, 0, 1, 0)
			}
			for i, f := range [][]func(){{send, recv}, {recv, send}}[seed%2] {
				if f(); i == 0 && seed%4 < 2 {
					c.run()
				}
			}
			c.settle()
			c.mailEnded(long, next, good)
			c.mailFailed(Truncated, 0, bad)
			if bad.size != int64(n) {
				t.Fatalf("%v: a message of %d bytes, want %d", bad, bad.size, n)
			}
			c.mailboxEmpty(0)
			c.allRight(c.plan(0, p2p.Allgather, "ring", 5).all())
		}
	}
}

// A sender without credit waits for a receive. The credit comes back with the receives.
func TestMailCredit(t *testing.T) {
	for seed := range uint64(20) {
		c := mailWorld(t, 2, seed)
		var sends, recvs []*parcel
		eager := func() (n int) {
			for _, x := range sends {
				if x.ended {
					n++
				}
			}
			return n
		}
		const fit = MailCredit / (EagerMail + MailCost)
		for range 3 * fit {
			sends = append(sends, c.hosts[0].send(0, 1, 3, EagerMail))
		}
		c.settle()
		if n := eager(); n != fit {
			t.Fatalf("%d sends ended before a receive, want %d", n, fit)
		}
		if n := len(c.hosts[1].early); n != fit {
			t.Fatalf("%d messages are kept, want %d", n, fit)
		}
		for range 3 * fit {
			recvs = append(recvs, c.hosts[1].recv(0, 0, 3, EagerMail))
		}
		c.settle()
		c.mailEnded(append(sends, recvs...)...)
		c.mailboxEmpty(0)
		again := c.hosts[0].send(0, 1, 3, EagerMail)
		if c.run(); !again.ended {
			t.Fatal("the sender has got no credit back")
		}
	}
}

// Empty messages cost credit too: a rank does not keep any number of them.
func TestMailCreditOfEmptyMessages(t *testing.T) {
	c := mailWorld(t, 2, 1)
	ended := 0
	var sends []*parcel
	for range MailCredit/MailCost + 10 {
		sends = append(sends, c.hosts[0].send(0, 1, 3, 0))
	}
	c.run()
	for _, x := range sends {
		if x.ended {
			ended++
		}
	}
	if ended != MailCredit/MailCost {
		t.Fatalf("%d sends ended, want %d", ended, MailCredit/MailCost)
	}
	for range sends {
		c.hosts[1].recv(0, 0, 3, 0)
	}
	c.run()
	c.mailEnded(sends...)
	c.mailboxEmpty(0)
}

// The data of an eager message may overtake its offer.
func TestMailDataFirst(t *testing.T) {
	for seed := range uint64(40) {
		c := mailWorld(t, 2, seed)
		c.hosts[1].inbox[0].Held = true
		s, s2 := c.hosts[0].send(0, 1, 3, 50), c.hosts[0].send(0, 1, 3, 60)
		var r, r2 *parcel
		if seed%2 == 0 {
			r = c.hosts[1].recv(0, 0, 3, 50)
		}
		c.run()
		if !s.ended || len(c.hosts[1].early) != 2 {
			t.Fatalf("%v; %d messages are kept", s, len(c.hosts[1].early))
		}
		c.hosts[1].inbox[0].Held = false
		if seed%4 < 2 {
			c.run()
		}
		if r == nil {
			r = c.hosts[1].recv(0, 0, 3, 50)
		}
		r2 = c.hosts[1].recv(0, AnyRank, 3, 60)
		c.settle()
		c.mailEnded(s, s2, r, r2)
		c.mailboxEmpty(0)
	}
}

// Bad calls are refused at once, and leave no trace.
func TestMailBadCalls(t *testing.T) {
	c := mailWorld(t, 3, 1)
	c.comm(4, 0, 1)
	c.remove(4, 0, 1)
	n := c.hosts[1].node
	for what, x := range map[string]struct{ err, want error }{
		"send on no communicator":       {n.StartSend(c.Now, 9, 1, 0, 0, 1), ErrComm},
		"send on a closed communicator": {n.StartSend(c.Now, 4, 1, 0, 0, 1), ErrComm},
		"send to itself":                {n.StartSend(c.Now, 0, 1, 1, 0, 1), ErrMail},
		"send to any rank":              {n.StartSend(c.Now, 0, 1, AnyRank, 0, 1), ErrMail},
		"send to no rank":               {n.StartSend(c.Now, 0, 1, 3, 0, 1), ErrMail},
		"send of negative size":         {n.StartSend(c.Now, 0, 1, 0, 0, -1), ErrMail},
		"receive on no communicator":    {n.StartRecv(c.Now, 9, 1, 0, 0, 1), ErrComm},
		"receive from itself":           {n.StartRecv(c.Now, 0, 1, 1, 0, 1), ErrMail},
		"receive from no rank":          {n.StartRecv(c.Now, 0, 1, -2, 0, 1), ErrMail},
		"receive of negative size":      {n.StartRecv(c.Now, 0, 1, 0, 0, -1), ErrMail},
	} {
		if !errors.Is(x.err, x.want) {
			t.Errorf("%s: error %v, want %v", what, x.err, x.want)
		}
	}
	if len(n.Actions()) > 0 || len(n.comms[0].mail.calls.all) > 0 {
		t.Error("a refused call had an effect")
	}
	if !n.Withdraw(9, 1) || !n.Withdraw(0, 77) {
		t.Error("what has ended cannot be taken back, and needs not")
	}
}

// A rank has a limited number of unfinished sends to another, and that rank accepts them all.
func TestMailLimit(t *testing.T) {
	c := world(t, 2, quietConfig())
	from, to := c.hosts[0].node, c.hosts[1].node
	for i := range uint64(MailCredit / MailCost) {
		if err := from.StartSend(c.Now, 0, i, 1, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	pass := func() {
		for acts := from.Actions(); len(acts) > 0; acts = from.Actions() {
			for _, a := range acts {
				switch a.Kind {
				case Open:
					from.Opened(c.Now, 0, a.Seq, false)
				case Send:
					to.Message(c.Now, 0, &a.Msg)
				case Put:
					from.Sent(c.Now, 0, a.Seq, 1)
				}
			}
		}
	}
	pass()
	for i := range uint64(maxSends) {
		if err := from.StartSend(c.Now, 0, 1<<20+i, 1, 0, EagerMail+1); err != nil {
			t.Fatal(err)
		}
	}
	pass()
	if err := from.StartSend(c.Now, 0, 1<<30, 1, 0, 0); !errors.Is(err, ErrMail) {
		t.Errorf("one send too many: %v", err)
	}
	if v := to.comms[0].broken; v != nil || len(to.comms[0].mail.offers) != maxOffers {
		t.Errorf("%d offers are kept, want %d: %+v", len(to.comms[0].mail.offers), maxOffers, v)
	}
}

// Inspect shows sends and receives that wait, and the ranks that they wait for.
func TestMailInspect(t *testing.T) {
	c := mailWorld(t, 4, 1)
	c.comm(5, 3, 2, 1)
	r := c.hosts[2].recv(5, 0, 8, 10)
	anyone := c.hosts[2].recv(5, AnyRank, 9, 10)
	s := c.hosts[1].send(5, 0, 7, EagerMail+1)
	c.run()
	for _, x := range []struct {
		p    *parcel
		kind wire.CallKind
		on   int
		miss string
	}{
		{r, wire.Recv, 3, "a message with tag 8"},
		{anyone, wire.Recv, 2, "a message with tag 9"},
		{s, wire.Send, 3, "a receive on rank 0 (world rank 3)"},
	} {
		v, ok := x.p.view()
		if !ok || v.Kind != x.kind || v.WaitingOn != x.on || v.Missing != x.miss {
			t.Errorf("%v: %+v", x.p, v)
		}
	}
	c.hosts[2].pieces[3].Held = true
	c.hosts[3].send(5, 1, 8, 10)
	c.hosts[3].recv(5, 2, 7, EagerMail+1)
	c.hosts[3].pieces[1].Held = true
	c.run()
	if v, ok := r.view(); !ok || v.WaitingOn != 3 || v.Missing != "10 bytes from rank 0 (world rank 3)" {
		t.Errorf("%v: %+v", r, v)
	}
	c.hosts[2].pieces[3].Held, c.hosts[3].pieces[1].Held = false, false
	c.run()
	if _, ok := r.view(); ok || !s.ended {
		t.Errorf("%v is shown after its end, or %v waits", r, s)
	}
}

// Collectives and messages do not affect each other: a communicator numbers its collectives as before, and
// both run at once.
func TestMailBesideCollectives(t *testing.T) {
	for seed := range uint64(100) {
		c := planWorld(t, 4, seed, eagerConfig())
		var mail []*parcel
		for from, h := range c.hosts {
			to := (from + 1) % 4
			mail = append(mail, h.send(0, to, 1, mailSizes[int(seed)%len(mailSizes)]))
		}
		calls := c.oneByOne(6, 1)
		for to, h := range c.hosts {
			mail = append(mail, h.recv(0, (to+3)%4, 1, EagerMail+1))
		}
		c.settle()
		c.mailEnded(mail...)
		c.allRight(calls...)
		c.mailboxEmpty(0)
		for _, h := range c.hosts {
			rounds := 0
			for _, k := range calls {
				rounds += k.rounds()
			}
			if n := h.node.NextSeq(0); n != uint64(rounds) {
				t.Fatalf("rank %d has numbered %d rounds of collectives, want %d", h.ID, n, rounds)
			}
			if s := h.node.Stats(); s.Stale != 0 || s.Foreign != 0 {
				t.Fatalf("rank %d dropped something: %+v", h.ID, s)
			}
		}
	}
}
