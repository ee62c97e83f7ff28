package node

import (
	"errors"
	"fmt"
	"slices"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// A Send and a Recv take no place in the order of collectives. The sender offers its message, and the
// receiver matches offers with receives: those of one sender with the same tag in order. Offers travel in
// order and data follows its offer, so no message overtakes another.
//
// A small message is eager: its data follows the offer at once. The receiver keeps it until a receive
// matches. Each pair of ranks has a limited credit for such data, which the receiver returns with the
// match. Without credit, a message waits at its sender, like a large one. A rank therefore never has to
// stop reading from a connection.
const (
	// EagerMail is the size up to which the data of a message may follow its offer.
	EagerMail = 64 << 10
	// MailCredit is the credit of a sender per communicator and receiver. A message takes its size and MailCost.
	MailCredit = 256 << 10
	// MailCost is what a message costs besides its bytes.
	MailCost = 256

	maxSends = 1 << 15 // limit of the unfinished sends of one rank to another
	// maxOffers is the number of offers of one rank that may wait for a match: those of its unfinished
	// sends, and of eager sends, which end when their data has left.
	maxOffers = maxSends + MailCredit/MailCost
)

// AnyRank is the source of a Recv that takes a message from any rank.
const AnyRank = -1

// ErrMail marks an invalid Send or Recv.
var ErrMail = errors.New("bad message")

// mail is the part of a call that concerns a Send or a Recv.
type mail struct {
	peer        int // rank of the communicator; AnyRank before the match
	tag         uint64
	bytes       int64  // Send: size of the message; Recv: size of the buffer, then of the message
	withdrawing Reason // Send: Withdrawn or Unmatched while the offer is being taken back, otherwise 0
	err         *Error
}

func (m *mail) matches(from int, o *wire.Msg) bool {
	return m.tag == o.Tag && (m.peer == AnyRank || m.peer == from)
}

// mailbox is the part of a communicator that concerns Send and Recv.
type mailbox struct {
	last   uint64            // number of the last message from this rank
	rounds map[uint64]*round // transfers by key
	calls  calls
	posted []*call // receives without a match, in order
	offers []offer // offers without a match, in order of arrival
	peers  map[int]*mailPeer

	probeAt step.Time    // time to ask the ranks that receives wait for whether they have left
	gone    map[int]bool // ranks that have answered that they have left
}

type offer struct {
	from int
	msg  wire.Msg
}

// mailPeer is the account of a mailbox with one rank.
type mailPeer struct {
	sends   int    // sends to the rank that have not ended
	credit  int64  // bytes that this rank may still send eagerly
	offers  int    // offers of the rank without a match
	kept    int64  // cost of the eager messages of the rank without a match
	owed    int64  // credit to return
	offered uint64 // key of the last offer

	overtaking map[uint64]int64 // cost of the messages whose data came before the offer, by key
	ahead      int64            // sum of these costs
}

func (b *mailbox) peer(rank int) *mailPeer {
	p := b.peers[rank]
	if p == nil {
		if b.peers == nil {
			b.peers, b.rounds = map[int]*mailPeer{}, map[uint64]*round{}
		}
		p = &mailPeer{credit: MailCredit}
		b.peers[rank] = p
	}
	return p
}

// StartSend starts a Send of a message to a rank of a communicator. Done returns req.
func (n *Node) StartSend(now step.Time, comm uint32, req uint64, to int, tag uint64, bytes int64) error {
	c, err := n.mailComm(comm, to, bytes)
	if err != nil {
		return err
	}
	if to == AnyRank {
		return fmt.Errorf("%w: a send needs a rank to send to", ErrMail)
	}
	b, p := &c.mail, c.mail.peer(to)
	if p.sends >= maxSends {
		return fmt.Errorf("%w: %d sends to %s are in flight: wait for some of them", ErrMail, p.sends, c.name(to))
	}
	p.sends++
	b.last++
	k := newMailCall(now, req, wire.Send, mail{peer: to, tag: tag, bytes: bytes})
	k.seq = wire.MailKey(c.rank, b.last)
	b.calls.add(k)
	if c.broken != nil {
		n.failCall(c, k)
		return nil
	}
	o := wire.Msg{Kind: wire.MsgOffer, Comm: c.id, Seq: k.seq, Tag: tag, Bytes: uint64(bytes)}
	if cost := bytes + MailCost; bytes <= EagerMail && cost <= p.credit {
		p.credit -= cost
		o.Flag = true
	}
	n.startMail(c, k, o)
	return nil
}

// StartRecv starts a Recv of a message of at most room bytes from a rank of a communicator, or from
// AnyRank. Done returns req.
func (n *Node) StartRecv(now step.Time, comm uint32, req uint64, from int, tag uint64, room int64) error {
	c, err := n.mailComm(comm, from, room)
	if err != nil {
		return err
	}
	b := &c.mail
	k := newMailCall(now, req, wire.Recv, mail{peer: from, tag: tag, bytes: room})
	b.calls.add(k)
	if c.broken != nil {
		n.failCall(c, k)
		return nil
	}
	i := slices.IndexFunc(b.offers, func(o offer) bool { return k.mail.matches(o.from, &o.msg) })
	if i < 0 {
		if len(b.posted) == 0 {
			b.probeAt = now + n.cfg.Timeout
		}
		b.posted = append(b.posted, k)
		return nil
	}
	o := b.offers[i]
	b.offers = slices.Delete(b.offers, i, i+1)
	b.peer(o.from).offers--
	n.match(c, k, o)
	return nil
}

func newMailCall(now step.Time, req uint64, kind wire.CallKind, m mail) *call {
	return &call{req: req, kind: kind, rounds: 1, startAt: now, deadline: step.Never, mail: &m}
}

// mailComm returns the communicator of a Send or a Recv of valid arguments.
func (n *Node) mailComm(comm uint32, peer int, bytes int64) (*comm, error) {
	c := n.comms[comm]
	switch {
	case c == nil || c.removed:
		return nil, fmt.Errorf("%w: %d", ErrComm, comm)
	case peer == c.rank:
		return nil, fmt.Errorf("%w: rank %d is this rank: copy the data instead", ErrMail, peer)
	case bytes < 0:
		return nil, fmt.Errorf("%w: %d bytes", ErrMail, bytes)
	case peer != AnyRank && (peer < 0 || peer >= len(c.members)):
		return nil, fmt.Errorf("%w: rank %d: must be 0 to %d", ErrMail, peer, len(c.members)-1)
	}
	return c, nil
}

// startMail starts the transfer of a message on this rank.
func (n *Node) startMail(c *comm, k *call, o wire.Msg) {
	plan := p2p.MailPlan(c.rank, len(c.members), k.mail.peer, int64(o.Bytes), k.kind == wire.Send)
	m := p2p.NewMail(plan, o)
	st := &round{op: m, mail: m, seq: k.seq, call: k}
	c.mail.rounds[k.seq] = st // and not live: it has no timer and never lingers
	k.running = true
	n.out = append(n.out, Action{
		Kind: Open, Comm: c.id, Seq: k.seq, Req: k.req, Inbox: p2p.NewInbox(plan), Len: plan.Bytes,
	})
}

// match starts the transfer of an offered message to a receive. A message that is too long is an error of
// the receive. If its data is on its way, the driver receives it and drops it.
func (n *Node) match(c *comm, k *call, o offer) {
	m, p := k.mail, c.mail.peer(o.from)
	room := m.bytes
	k.seq, m.peer, m.bytes = o.msg.Seq, o.from, int64(o.msg.Bytes)
	if m.bytes > room {
		m.err = &Error{
			Comm: c.id, Seq: k.seq, Op: wire.Recv, Phase: step.Queued, Culprit: c.members[o.from], Reason: Truncated,
			Missing: fmt.Sprintf("room for a message of %d bytes in a buffer of %d", m.bytes, room),
		}
	}
	if o.msg.Flag {
		cost := m.bytes + MailCost
		p.kept -= cost
		if p.owed += cost; p.owed >= MailCredit/2 {
			n.send(c.members[o.from], &wire.Msg{Kind: wire.MsgCredit, Comm: c.id, Bytes: uint64(p.owed)})
			p.owed = 0
		}
	} else if m.err != nil {
		n.send(c.members[o.from], &wire.Msg{Kind: wire.MsgDiscard, Comm: c.id, Seq: k.seq})
		n.endCall(c, k, m.err)
		return
	}
	n.startMail(c, k, o.msg)
}

// Withdraw takes back a Send or a Recv whose caller has given up. The call then ends soon: with reason
// Withdrawn, or as if nothing had happened if its data has already left. It returns false if the other
// rank counts on the call: only breaking the communicator ends it.
func (n *Node) Withdraw(comm uint32, req uint64) bool {
	c := n.comms[comm]
	if c == nil {
		return true
	}
	i := slices.IndexFunc(c.mail.calls.all, func(k *call) bool { return k.req == req })
	return i < 0 || c.broken != nil || n.withdraw(c, c.mail.calls.all[i], Withdrawn)
}

// expireMail gives up a Send or a Recv that has passed its deadline.
func (n *Node) expireMail(c *comm, k *call) {
	if !n.withdraw(c, k, Unmatched) {
		// The peer has done its part, and the data is on its way.
		n.breakAndNotify(c, verdict{culprit: NoRank, reason: Deadline, seq: k.seq}, -1)
	}
}

// withdraw is Withdraw with the reason of the call's error.
func (n *Node) withdraw(c *comm, k *call, reason Reason) bool {
	b := &c.mail
	switch {
	case k.kind == wire.Recv && k.running:
		return c.find(k.seq).mail.Eager()
	case k.kind == wire.Recv:
		b.posted = slices.DeleteFunc(b.posted, func(p *call) bool { return p == k })
		n.endCall(c, k, k.withdrawn(c, reason))
	default:
		st := c.find(k.seq)
		switch {
		case !st.opened: // no rank knows of it
			if st.mail.Eager() {
				b.peer(k.mail.peer).credit += k.mail.bytes + MailCost
			}
			n.dropOffer(c, st, reason)
		case st.mail.Eager():
		case st.mail.Asked():
			return false
		case k.mail.withdrawing == 0:
			k.mail.withdrawing = reason
			n.send(c.members[k.mail.peer], &wire.Msg{Kind: wire.MsgWithdraw, Comm: c.id, Seq: k.seq})
		}
	}
	return true
}

// dropOffer ends a Send whose message no rank will ask for.
func (n *Node) dropOffer(c *comm, st *round, reason Reason) {
	k := st.call
	k.running, st.done = false, true
	st.op.Fail()
	n.out = append(n.out, Action{Kind: Release, Comm: c.id, Seq: st.seq})
	n.endCall(c, k, k.withdrawn(c, reason))
	n.closeRound(c, st)
	delete(c.mail.rounds, st.seq)
}

// withdrawn is the error of a Send or a Recv that was taken back. At a deadline, the peer that provided no
// match is the culprit.
func (k *call) withdrawn(c *comm, reason Reason) *Error {
	e := &Error{Comm: c.id, Seq: k.seq, Op: k.kind, Phase: step.Queued, Culprit: NoRank, Reason: reason}
	peer := "any rank"
	if k.mail.peer != AnyRank {
		peer = c.name(k.mail.peer)
		if reason == Unmatched {
			e.Culprit = c.members[k.mail.peer]
		}
	}
	if k.kind == wire.Send {
		e.Missing = fmt.Sprintf("a receive with tag %d on %s", k.mail.tag, peer)
	} else {
		e.Missing = fmt.Sprintf("a message with tag %d from %s", k.mail.tag, peer)
	}
	return e
}

// handleMail handles a message of a Send or a Recv from a rank of the communicator.
func (n *Node) handleMail(now step.Time, c *comm, from int, m *wire.Msg) {
	if c.broken != nil {
		n.send(c.members[from], c.broken.message(c.id))
		return
	}
	b, p := &c.mail, c.mail.peer(from)
	switch m.Kind {
	case wire.MsgOffer:
		n.handleOffer(c, from, m)
	case wire.MsgCredit:
		if m.Bytes > uint64(MailCredit-p.credit) {
			n.breakProtocol(c, from, m)
			return
		}
		p.credit += int64(m.Bytes)
	case wire.MsgWithdraw:
		i := slices.IndexFunc(b.offers, func(o offer) bool { return o.msg.Seq == m.Seq && o.from == from })
		switch {
		case i < 0: // the answer to the offer is on its way
		case b.offers[i].msg.Flag:
			n.breakProtocol(c, from, m) // its data has left
		default:
			b.offers = slices.Delete(b.offers, i, i+1)
			p.offers--
			n.send(c.members[from], &wire.Msg{Kind: wire.MsgWithdrawn, Comm: c.id, Seq: m.Seq})
		}
	case wire.MsgAccept, wire.MsgDiscard, wire.MsgWithdrawn:
		st := c.find(m.Seq)
		switch {
		case st == nil || st.call.kind != wire.Send || st.call.mail.peer != from || st.done || !st.opened:
			n.stats.Stale++
		case m.Kind == wire.MsgWithdrawn && st.call.mail.withdrawing != 0:
			n.dropOffer(c, st, st.call.mail.withdrawing)
		case m.Kind == wire.MsgAccept && st.call.mail.withdrawing == Withdrawn:
			// The receiver counts on a message that the caller no longer wants to send.
			n.breakAndNotify(c, verdict{culprit: n.cfg.Rank, reason: Cancelled, seq: m.Seq}, -1)
		case m.Kind == wire.MsgAccept && st.call.mail.withdrawing == Unmatched:
			n.breakAndNotify(c, verdict{culprit: NoRank, reason: Deadline, seq: m.Seq}, -1)
		default:
			n.execute(c, st, st.op.Step(now, step.Event{Kind: step.EvMsg, From: from, Msg: m}, n.steps[:0]))
		}
	}
}

// handleOffer matches an offer with the first receive that fits, or keeps it.
func (n *Node) handleOffer(c *comm, from int, m *wire.Msg) {
	b, p := &c.mail, c.mail.peer(from)
	sender, isMail := wire.MailSender(m.Seq)
	cost := int64(m.Bytes) + MailCost
	eagerTooMuch := m.Flag && (m.Bytes > EagerMail || p.kept+cost > MailCredit)
	early, hasData := p.overtaking[m.Seq]
	unasked := hasData && (!m.Flag || early != cost) // no correct sender sends such data
	if !isMail || sender != from || m.Seq <= p.offered || int64(m.Bytes) < 0 || p.offers == maxOffers ||
		eagerTooMuch || unasked {
		n.breakProtocol(c, from, m)
		return
	}
	p.offered = m.Seq
	if hasData {
		delete(p.overtaking, m.Seq)
		p.ahead -= early
	}
	if m.Flag {
		p.kept += cost
	}
	o := offer{from, *m}
	if i := slices.IndexFunc(b.posted, func(k *call) bool { return k.mail.matches(from, m) }); i >= 0 {
		k := b.posted[i]
		b.posted = slices.Delete(b.posted, i, i+1)
		n.match(c, k, o)
		return
	}
	p.offers++
	b.offers = append(b.offers, o)
}

// breakProtocol breaks a communicator because a peer sent what no correct rank sends.
func (n *Node) breakProtocol(c *comm, from int, m *wire.Msg) {
	n.breakAndNotify(c, verdict{culprit: c.members[from], reason: Protocol, seq: m.Seq}, -1)
}

// earlyMail reports whether data belongs to an eager message that waits for its match.
func (c *comm) earlyMail(from int, seq uint64, length int64) bool {
	sender, _ := wire.MailSender(seq)
	if sender != from || length > EagerMail {
		return false
	}
	if st := c.find(seq); st != nil {
		return !st.opened && st.call.kind == wire.Recv
	}
	p := c.mail.peer(from)
	if seq <= p.offered {
		return slices.ContainsFunc(c.mail.offers, func(o offer) bool {
			return o.msg.Seq == seq && o.msg.Flag && o.msg.Bytes == uint64(length)
		})
	}
	return p.overtakes(seq, length+MailCost)
}

// overtakes records data that has overtaken its offer, on a fabric that carries them on different paths.
// It returns false if the rank has no credit for it.
func (p *mailPeer) overtakes(seq uint64, cost int64) bool {
	if known, again := p.overtaking[seq]; again {
		return known == cost
	}
	if p.ahead+cost > MailCredit {
		return false
	}
	if p.overtaking == nil {
		p.overtaking = map[uint64]int64{}
	}
	p.overtaking[seq] = cost
	p.ahead += cost
	return true
}

// probeSenders asks the ranks that receives have waited for whether they are still there. A rank that has
// closed the communicator answers that it is gone (handleUnknownComm). Other ranks do not answer.
func (n *Node) probeSenders(now step.Time, c *comm) {
	b := &c.mail
	if now < c.mailTimer(n.cfg.Timeout) || c.broken != nil {
		return
	}
	b.probeAt = now + n.cfg.Timeout
	asked := make(map[int]bool)
	for _, k := range b.posted {
		from := k.mail.peer
		if from == AnyRank {
			from = b.present(c)
		}
		if from != c.rank && !asked[from] {
			asked[from] = true
			n.send(c.members[from], &wire.Msg{Kind: wire.MsgProbeWait, Comm: c.id, Seq: wire.MailKey(c.rank, 0)})
		}
	}
}

// present returns another rank of the communicator, if possible one that is not known to have left. A receive from
// any rank fails only once all of them have left, so it is enough to ask one at a time.
func (b *mailbox) present(c *comm) int {
	next := (c.rank + 1) % len(c.members)
	for i := range c.members {
		if r := (next + i) % len(c.members); r != c.rank && !b.gone[r] {
			return r
		}
	}
	return next
}

// hasGone records that a rank has left, and reports whether a receive without a match waits for it in vain.
func (b *mailbox) hasGone(c *comm, rank int) bool {
	if b.gone == nil {
		b.gone = make(map[int]bool)
	}
	b.gone[rank] = true
	b.probeAt = 0 // ask the next one
	return slices.ContainsFunc(b.posted, func(k *call) bool {
		return k.mail.peer == rank || k.mail.peer == AnyRank && len(b.gone) == len(c.members)-1
	})
}

// mailTimer returns the time of the next probeSenders.
func (c *comm) mailTimer(timeout step.Time) step.Time {
	if timeout <= 0 || len(c.mail.posted) == 0 {
		return step.Never
	}
	return c.mail.probeAt
}
