package node

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// parcel is one Send or Recv on one rank: its buffer and its outcome.
type parcel struct {
	h      *host
	req    uint64
	comm   uint32
	kind   wire.CallKind
	peer   int // rank of the communicator; of a Recv also AnyRank
	tag    uint64
	buf    []byte
	posted int // number of the call on its rank

	key    uint64 // of the message, once there is a transfer or an error that names it
	round  bool   // whether the node has opened a transfer
	state  roundState
	opened bool
	closed bool
	in     *p2p.Inbox
	dropAt int64 // size of a message that does not fit and is dropped; otherwise 0

	expires bool // whether the call is given up by its deadline instead of by its caller
	gaveUp  bool // whether it was given up
	forced  bool // whether the caller had to break the communicator
	ended   bool
	err     *Error
	from    int // Recv: rank of the sender
	size    int64
	taken   *parcel // Send: Recv that took the message
}

func (x *parcel) String() string {
	return fmt.Sprintf("%v %d on rank %d, peer %d, tag %d, %d bytes: ended %v, error %v",
		x.kind, x.req, x.h.ID, x.peer, x.tag, len(x.buf), x.ended, x.err)
}

// mailHost is the part of a host that concerns Send and Recv.
type mailHost struct {
	mails    map[uint64]*parcel // by request
	transits map[opKey]*parcel  // by communicator and key, until closed
	posts    *clustertest.Queue[func()]
	mailOpen *clustertest.Queue[*parcel]
	quits    *clustertest.Queue[*parcel] // calls of Withdraw
	made     int
}

func newMailHost(h *host) mailHost {
	return mailHost{
		mails: map[uint64]*parcel{}, transits: map[opKey]*parcel{},
		posts:    queueOf(h, "post", h.ID, func(f func()) { f() }),
		mailOpen: queueOf(h, "mail open", h.ID, h.mailOpened),
		quits:    queueOf(h, "withdraw", h.ID, h.withdraw),
	}
}

// content is the data of the message with a request number.
func content(req uint64, n int) []byte {
	word := binary.BigEndian.AppendUint64(nil, req*0x9e3779b97f4a7c15)
	return bytes.Repeat(word, n/8+1)[:n]
}

func (h *host) parcel(comm uint32, kind wire.CallKind, peer int, tag uint64, n int) *parcel {
	c := h.c
	c.parcels++
	x := &parcel{
		h: h, req: 1<<32 + c.parcels, comm: comm, kind: kind, peer: peer, tag: tag, buf: make([]byte, n), from: -2,
	}
	if kind == wire.Send {
		copy(x.buf, content(x.req, n))
	}
	c.mail = append(c.mail, x)
	return x
}

// send makes a Send now.
func (h *host) send(comm uint32, to int, tag uint64, n int) *parcel {
	x := h.parcel(comm, wire.Send, to, tag, n)
	h.post(x)
	h.act()
	return x
}

// recv makes a Recv now.
func (h *host) recv(comm uint32, from int, tag uint64, n int) *parcel {
	x := h.parcel(comm, wire.Recv, from, tag, n)
	h.post(x)
	h.act()
	return x
}

func (h *host) post(x *parcel) {
	c := h.c
	h.mails[x.req] = x
	h.made++
	x.posted = h.made
	start := h.node.StartSend
	if x.kind == wire.Recv {
		start = h.node.StartRecv
	}
	if err := start(c.Now, x.comm, x.req, x.peer, x.tag, int64(len(x.buf))); err != nil {
		c.Failf("rank %d: %v: %v", h.ID, x, err)
	}
}

// withdraw gives up a call. If the node cannot take it back, the caller breaks the communicator.
func (h *host) withdraw(x *parcel) {
	if x.ended {
		return
	}
	x.gaveUp = true
	if x.expires {
		h.node.SetDeadline(x.comm, x.req, h.c.Now)
		h.node.Timer(h.c.Now)
		h.c.hurt = h.c.hurt || h.node.comms[x.comm].broken != nil
		return
	}
	if h.node.Withdraw(x.comm, x.req) {
		return
	}
	x.forced = true
	h.c.hurt = true
	if err := h.node.Cancel(x.comm); err != nil {
		h.c.Failf("rank %d: %v", h.ID, err)
	}
}

// doMail carries out an action of a Send or a Recv, and reports whether it was one.
func (h *host) doMail(a *Action) bool {
	c, key := h.c, opKey{a.Comm, a.Seq}
	if x := h.mails[a.Req]; a.Kind == Done && x != nil {
		h.mailDone(x, a)
		return true
	}
	if _, isMail := wire.MailSender(a.Seq); !isMail || a.Kind == Send || a.Kind == Done {
		return false
	}
	if a.Kind == Open {
		h.openMail(a)
		return true
	}
	x := h.transits[key]
	want := isOpen
	if a.Kind == Closed {
		want = released
	}
	if x == nil || x.state != want {
		c.Failf("rank %d: action %d for message %x, which is not in state %d: %v", h.ID, a.Kind, a.Seq, want, x)
	}
	switch a.Kind {
	case Put:
		if x.kind != wire.Send || a.Len != int64(len(x.buf)) || a.Off != 0 || a.To != c.comms[a.Comm][x.peer] {
			c.Failf("rank %d puts %+v for %v", h.ID, a, x)
		}
		h.puts.Push(*a)
	case Release:
		x.state = released
	case Quiesce:
		c.hurt = true
		x.state = revoked
		h.quiet.Push(key)
	case Closed:
		x.closed = true
		h.drains.Push(key)
	default:
		c.Failf("rank %d: action %d for a message", h.ID, a.Kind)
	}
	return true
}

func (h *host) openMail(a *Action) {
	x := h.mails[a.Req]
	key := opKey{a.Comm, a.Seq}
	if x == nil || x.ended || x.round || h.transits[key] != nil || a.Inbox == nil {
		h.c.Failf("rank %d opens message %x for request %d: %v", h.ID, a.Seq, a.Req, x)
	}
	x.round, x.key, x.in = true, a.Seq, a.Inbox
	if a.Len > int64(len(x.buf)) {
		if x.kind == wire.Send {
			h.c.Failf("rank %d sends %d bytes of %v", h.ID, a.Len, x)
		}
		x.dropAt = a.Len
	}
	h.transits[key] = x
	h.waiting[a.Comm]++
	h.mailOpen.Push(x)
}

func (h *host) mailOpened(x *parcel) {
	key := opKey{x.comm, x.key}
	if x.state != isOpen {
		return // it ended meanwhile
	}
	x.opened = true
	h.node.Opened(h.c.Now, x.comm, x.key, false)
	for _, p := range h.early[key] {
		h.recalls.Push(p)
	}
	delete(h.early, key)
}

// openTransit returns the transfer of a message whose buffer the fabric may touch, or nil.
func (h *host) openTransit(key opKey) *parcel {
	if x := h.transits[key]; x != nil && x.opened && x.state == isOpen {
		return x
	}
	return nil
}

func (h *host) mailLeaves(a Action) {
	c, key := h.c, opKey{a.Comm, a.Seq}
	x := h.openTransit(key)
	if x == nil {
		return // it failed meanwhile
	}
	c.hosts[a.To].pieces[h.ID].Push(piece{key, h.ID, a.PSN, slices.Clone(x.buf)})
	h.node.Sent(c.Now, a.Comm, a.Seq, 1)
}

// takesMail places the data of a message and reports whether it was expected.
func (h *host) takesMail(p piece) bool {
	x := h.openTransit(p.opKey)
	if x == nil || x.kind != wire.Recv {
		return false
	}
	i, r, hold, ok := x.in.Take(slices.Index(h.c.comms[p.comm], p.from), p.nth, int64(len(p.payload)))
	if !ok {
		return false
	}
	if hold || r.Off != 0 || r.Reduce {
		h.c.Failf("rank %d takes a message as %+v", h.ID, r)
	}
	if x.dropAt == 0 {
		copy(x.buf, p.payload)
	}
	x.in.Arrived(i)
	prefix, left := x.in.Progress()
	h.node.Pieces(h.c.Now, p.from, p.comm, p.seq, prefix, left)
	return true
}

// mailDone checks that a call ends once, when nothing can touch its buffer any more, with the right data
// or with a complete error.
func (h *host) mailDone(x *parcel, a *Action) {
	c := h.c
	if x.ended || x.round && x.state != released && x.state != quiet {
		c.Failf("rank %d: %v ends in state %d", h.ID, x, x.state)
	}
	x.ended, x.err, x.from, x.size = true, a.Err, a.To, a.Len
	switch e := a.Err; {
	case e == nil && x.kind == wire.Recv:
		c.receives(x)
	case e == nil:
	case e.Comm != x.comm || e.Op != x.kind || e.Missing == "" || e.Culprit < NoRank || e.Culprit >= len(c.hosts) ||
		reasonNames[e.Reason] == "":
		c.Failf("rank %d: the error of %v is wrong: %+v", h.ID, x, *e)
	case e.Reason == Truncated:
		x.key = e.Seq
		c.receives(x)
	case e.Reason == Withdrawn || e.Reason == Unmatched:
		if !x.gaveUp || x.expires != (e.Reason == Unmatched) {
			c.Failf("rank %d: %v is withdrawn, but its caller waits", h.ID, x)
		}
	default:
		c.hurt = true
	}
	clustertest.Poison(x.buf)
}

// receives checks the message that a Recv took.
func (c *cluster) receives(x *parcel) {
	s := c.sendOf(x)
	if s == nil {
		c.Failf("rank %d: %v received message %x, which no rank sent", x.h.ID, x, x.key)
	}
	to := c.comms[s.comm][s.peer]
	n := int64(len(s.buf))
	switch {
	case s.taken != nil:
		c.Failf("%v is received twice: by %v and %v", s, s.taken, x)
	case to != x.h.ID || s.tag != x.tag || x.peer != AnyRank && x.peer != x.from || c.comms[x.comm][x.from] != s.h.ID:
		c.Failf("%v received %v", x, s)
	case x.size != n || (x.err == nil) != (n <= int64(len(x.buf))):
		c.Failf("%v received %d bytes of %d: error %v", x, x.size, n, x.err)
	case x.err == nil && !bytes.Equal(x.buf[:n], content(s.req, int(n))):
		c.Failf("%v received wrong data", x)
	}
	s.taken = x
}

// sendOf returns the Send of the message that a Recv took.
func (c *cluster) sendOf(x *parcel) *parcel {
	sender, _ := wire.MailSender(x.key)
	world := c.comms[x.comm][sender]
	for _, s := range c.mail {
		if s.kind == wire.Send && s.comm == x.comm && s.key == x.key && s.h.ID == world {
			return s
		}
	}
	return nil
}

// mailSettled checks an idle cluster without failures: matching kept its order, no Send and Recv that fit
// wait for each other, and the accounts of all pairs agree.
func (c *cluster) mailSettled() {
	c.T.Helper()
	type line struct {
		comm     uint32
		from, to int
		tag      uint64
	}
	last := map[line]*parcel{}
	for _, s := range c.mail { // sends of a rank are in order
		if s.kind != wire.Send || s.taken == nil {
			continue
		}
		l := line{s.comm, s.h.ID, s.taken.h.ID, s.tag}
		if before := last[l]; before != nil && before.posted < s.posted && before.taken.posted > s.taken.posted {
			c.Failf("%v overtook %v", s, before)
		}
		last[l] = s
	}
	for _, r := range c.mail {
		for _, s := range c.mail {
			if s.taken == nil && s.err == nil && !r.ended && c.fits(s, r) {
				c.Failf("%v and %v wait for each other", r, s)
			}
		}
	}
	for id, members := range c.comms {
		for a := range members {
			for b := range members {
				c.checkCredit(id, a, b)
			}
		}
	}
}

// fits reports whether two calls that were made are a Send and a Recv of the same message.
func (c *cluster) fits(s, r *parcel) bool {
	return s.kind == wire.Send && r.kind == wire.Recv && s.posted > 0 && r.posted > 0 && s.comm == r.comm &&
		s.tag == r.tag && c.comms[s.comm][s.peer] == r.h.ID && (r.peer == AnyRank || c.comms[r.comm][r.peer] == s.h.ID)
}

// checkCredit checks that no credit of rank a at rank b is lost.
func (c *cluster) checkCredit(id uint32, a, b int) {
	from, to := c.hosts[c.comms[id][a]].node.comms[id], c.hosts[c.comms[id][b]].node.comms[id]
	if from == nil || to == nil || from.broken != nil || to.broken != nil {
		return
	}
	credit, kept, owed := int64(MailCredit), int64(0), int64(0)
	if p := from.mail.peers[b]; p != nil {
		credit = p.credit
	}
	if p := to.mail.peers[a]; p != nil {
		kept, owed = p.kept, p.owed
	}
	if credit < 0 || credit+kept+owed != MailCredit || owed >= MailCredit/2 {
		c.Failf("communicator %d: rank %d has a credit of %d at rank %d, which keeps %d and owes %d",
			id, a, credit, b, kept, owed)
	}
}

// mailboxEmpty checks that a communicator holds nothing of a Send or a Recv, on any living rank.
func (c *cluster) mailboxEmpty(id uint32) {
	c.T.Helper()
	for _, h := range c.hosts {
		co := h.node.comms[id]
		if co == nil || h.Dead || co.broken != nil {
			continue
		}
		b := &co.mail
		if len(b.calls.all)+len(b.posted)+len(b.offers)+len(b.rounds) > 0 {
			c.Failf("rank %d: %d calls, %d posted, %d offers, %d rounds",
				h.ID, len(b.calls.all), len(b.posted), len(b.offers), len(b.rounds))
		}
		for r, p := range b.peers {
			if p.sends != 0 || p.offers != 0 || p.kept != 0 || p.ahead != 0 || len(p.overtaking) != 0 {
				c.Failf("rank %d and rank %d: %+v", h.ID, r, *p)
			}
		}
	}
}

// mailEnded checks that parcels have ended, without an error.
func (c *cluster) mailEnded(all ...*parcel) {
	c.T.Helper()
	for _, x := range all {
		if !x.ended || x.err != nil {
			c.Failf("%v", x)
		}
	}
}

// mailFailed checks that parcels have ended with a reason and a culprit.
func (c *cluster) mailFailed(reason Reason, culprit int, all ...*parcel) {
	c.T.Helper()
	for _, x := range all {
		if !x.ended || x.err == nil || x.err.Reason != reason || x.err.Culprit != culprit {
			c.Failf("%v; want %v by rank %d", x, reason, culprit)
		}
	}
}

// view returns how Inspect shows a call.
func (x *parcel) view() (v CallView, ok bool) {
	for _, c := range x.h.node.Inspect() {
		for _, v := range c.Open {
			if c.ID == x.comm && v.Req == x.req {
				return v, true
			}
		}
	}
	return CallView{Phase: step.Closed}, false
}
