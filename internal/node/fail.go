package node

import (
	"fmt"
	"maps"
	"slices"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// breakBy breaks a communicator and tells its other members, except the one
// that told us.
func (n *Node) breakBy(c *comm, v verdict, from int) {
	if c.broken != nil {
		return
	}
	told := n.acquainted()
	for _, r := range mcast.AppendPeers(nil, c.rank, len(c.members)) {
		told = append(told, c.members[r])
	}
	slices.Sort(told)
	for _, w := range slices.Compact(told) {
		if _, member := c.rankOf(w); member && w != from && !n.live.dead[w] {
			n.send(w, v.message(c.id))
		}
	}
	n.breakComm(c, v)
}

func (v *verdict) message(comm uint32) *wire.Msg {
	return &wire.Msg{
		Kind: wire.MsgAbort, Comm: comm, Seq: v.seq, Rank: uint32(int32(v.culprit)), Reason: uint8(v.reason), Pair: v.pair,
	}
}

// aborted takes a peer's verdict. One that makes no sense says only that the peer is
// at fault.
func (n *Node) aborted(c *comm, from int, m *wire.Msg) {
	v := verdict{culprit: int(int32(m.Rank)), reason: Reason(m.Reason), seq: m.Seq, pair: m.Pair}
	if !v.valid(c, n.cfg.Size) {
		v = verdict{culprit: from, reason: Protocol, seq: m.Seq}
		from = -1 // it is told as well
	}
	n.breakBy(c, v, from)
}

// valid reports whether a verdict can have been made by a correct member.
func (v *verdict) valid(c *comm, size int) bool {
	member := func(w int) bool { _, ok := c.rankOf(w); return ok }
	if _, known := reasonNames[v.reason]; !known {
		return false
	}
	// A communicator that was being made breaks with the one that it was made of: the culprit may be
	// a member of that one only.
	if v.culprit == NoRank && v.reason != Deadline && v.reason != Corrupt || v.culprit != NoRank && (v.culprit < 0 || v.culprit >= size) {
		return false
	}
	if v.pair == nil {
		return v.reason != Corrupt
	}
	return (v.reason == Mismatch || v.reason == Corrupt) && member(int(v.pair.Ranks[0])) && member(int(v.pair.Ranks[1]))
}

// mismatch breaks a communicator because a peer made another call than ours.
func (n *Node) mismatch(c *comm, from int, seq uint64, theirs, ours wire.Call) {
	pair := &wire.CallPair{Ranks: [2]uint32{uint32(c.members[from]), uint32(n.cfg.Rank)}, Calls: [2]wire.Call{theirs, ours}}
	n.breakBy(c, verdict{culprit: c.members[from], reason: Mismatch, seq: seq, pair: pair}, -1)
}

// corrupt breaks a communicator because a neighbour and we ended with different bytes.
// Whose memory is at fault nobody knows.
func (n *Node) corrupt(c *comm, from int, seq uint64) {
	pair := &wire.CallPair{Ranks: [2]uint32{uint32(n.cfg.Rank), uint32(c.members[from])}}
	n.breakBy(c, verdict{culprit: NoRank, reason: Corrupt, seq: seq, pair: pair}, -1)
}

// info describes a call, for people.
func (k *call) info() wire.Call {
	switch {
	case k.p2p != nil:
		return k.p2p.Call()
	case k.inc != nil:
		return k.inc.Call()
	}
	return k.plan[0].Call()
}

// breakComm fails every call that has not completed. Operations that only
// lingered are forgotten: whoever needed them learns of the failure too.
func (n *Node) breakComm(c *comm, v verdict) {
	if c.broken != nil {
		return
	}
	c.broken = &v
	for _, k := range append([]*call(nil), c.calls...) {
		n.failCall(c, k)
	}
	for _, st := range c.live {
		if st.done && !st.closed {
			st.closed = true
			st.op.Fail()
			n.out = append(n.out, Action{Kind: Closed, Comm: c.id, Seq: st.seq})
		}
	}
}

// failCall ends a call with the communicator's verdict, at once if it touches no
// buffer, or when it is quiet.
func (n *Node) failCall(c *comm, k *call) {
	err := &Error{
		Comm: c.id, Seq: k.seq, Op: k.kind, Phase: step.Queued,
		Culprit: c.broken.culprit, Reason: c.broken.reason, Pair: c.broken.pair, Missing: "everything",
	}
	if !k.running {
		n.end(c, k, err)
		return
	}
	st := c.find(k.next())
	if st.mc == nil {
		n.others--
	}
	err.Phase, err.Missing = st.op.Phase(), st.op.Missing(c.name)
	if more := k.rounds - k.round - 1; more > 0 {
		err.Missing += fmt.Sprintf(", and %d more rounds", more)
	}
	st.op.Fail()
	k.failed = err
	n.out = append(n.out, Action{Kind: Quiesce, Comm: c.id, Seq: st.seq})
}

// Cancel breaks a communicator on all ranks, because the caller of an operation on it has given up.
func (n *Node) Cancel(comm uint32) error { return n.breakOn(comm, Cancelled) }

// Abort breaks a communicator on all ranks, at the user's request.
func (n *Node) Abort(comm uint32) error { return n.breakOn(comm, Aborted) }

func (n *Node) breakOn(comm uint32, why Reason) error {
	c := n.comms[comm]
	if c == nil {
		return fmt.Errorf("%w: %d", ErrComm, comm)
	}
	n.breakBy(c, verdict{culprit: n.cfg.Rank, reason: why}, -1)
	return nil
}

// Disown ends the use of a communicator that could not be made everywhere, because the one that it
// was to be made of broke. Members that use it learn why.
func (n *Node) Disown(comm, parent uint32) error {
	if err := n.Inherit(comm, parent); err != nil {
		return err
	}
	return n.RemoveComm(comm)
}

// Inherit breaks a communicator with the verdict of another, if that one is broken: the members of
// the former then learn who really failed.
func (n *Node) Inherit(comm, from uint32) error {
	c, f := n.comms[comm], n.comms[from]
	if c == nil || f == nil {
		return fmt.Errorf("%w: %d or %d", ErrComm, comm, from)
	}
	if f.broken != nil {
		n.breakBy(c, f.broken.inherited(n.cfg.Rank), -1)
	}
	return nil
}

// inherited is a verdict as one of another communicator, on which this rank spreads it. That one has
// had no call that was mismatched or corrupt.
func (v *verdict) inherited(rank int) verdict {
	w := verdict{culprit: v.culprit, reason: v.reason}
	if w.reason == Corrupt || w.reason == Mismatch {
		w.reason = Aborted
	}
	if w.culprit == NoRank && w.reason != Deadline {
		w.culprit = rank // somebody aborts
	}
	return w
}

// Quiesced learns that nothing can touch a failed operation's buffers any more.
func (n *Node) Quiesced(comm uint32, seq uint64) {
	c := n.comms[comm]
	if c == nil {
		return
	}
	if st := c.find(seq); st != nil && st.call.failed != nil {
		err := st.call.failed
		st.call.failed = nil
		n.end(c, st.call, err)
	}
}

// PeerLost learns that the connection to a world rank is gone.
func (n *Node) PeerLost(now step.Time, rank int) { n.declare(now, rank, -1) }

// declare takes a process for lost, passes it on, and breaks its communicators.
func (n *Node) declare(now step.Time, rank, from int) {
	l := &n.live
	if rank < 0 || rank >= n.cfg.Size || l.dead[rank] {
		return
	}
	l.dead[rank] = true
	l.deaths = append(l.deaths, rank)
	left, right := l.left, l.right
	l.retarget(now)
	n.tell(l.deaths[len(l.deaths)-1:], append(mcast.AppendPeers(n.acquainted(), n.cfg.Rank, n.cfg.Size), left, right), from)
	if l.left != left {
		n.tell(l.deaths, []int{l.left}, -1)
	}
	if l.right != right {
		n.tell(l.deaths, []int{l.right}, -1)
	}
	for _, c := range n.order {
		if r, member := c.rankOf(rank); member {
			n.breakComm(c, verdict{culprit: rank, reason: Lost})
			n.agreeDead(c, r)
		}
	}
	// Should it only have been slow, it learns that it is out, and blames nobody.
	if rank != n.cfg.Rank {
		n.send(rank, &wire.Msg{Kind: wire.MsgDead, Rank: uint32(rank)})
		n.out = append(n.out, Action{Kind: Drop, To: rank})
	}
}

// acquainted is everybody whom we have a connection with. They hear of a failure from
// us also where the ring and the barrier do not need it: this process may end because
// of it, and who sees only that would take us for the cause.
func (n *Node) acquainted() []int {
	return slices.Sorted(maps.Keys(n.met))
}

// tell passes deaths on to living peers, except the one we have it from.
func (n *Node) tell(deaths, peers []int, from int) {
	for i, p := range peers {
		if p < 0 || p == from || n.live.dead[p] || slices.Contains(peers[:i], p) {
			continue
		}
		for _, d := range deaths {
			n.send(p, &wire.Msg{Kind: wire.MsgDead, Rank: uint32(d)})
		}
	}
}
