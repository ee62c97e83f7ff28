package node

import (
	"fmt"
	"maps"
	"slices"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// breakAndNotify breaks a communicator and sends the verdict to its other members, except to from.
func (n *Node) breakAndNotify(c *comm, v verdict, from int) {
	if c.broken != nil {
		return
	}
	peers := n.connectedPeers()
	for _, r := range mcast.AppendPeers(c.earlyCallers(), c.rank, len(c.members)) {
		peers = append(peers, c.members[r])
	}
	slices.Sort(peers)
	for _, w := range slices.Compact(peers) {
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

// handleAbort adopts a peer's verdict. An invalid verdict counts as a protocol violation by the peer.
func (n *Node) handleAbort(c *comm, from int, m *wire.Msg) {
	v := verdict{culprit: int(int32(m.Rank)), reason: Reason(m.Reason), seq: m.Seq, pair: m.Pair}
	if !v.valid(c, n.cfg.Size) {
		v = verdict{culprit: from, reason: Protocol, seq: m.Seq}
		from = -1 // send the new verdict to it as well
	}
	n.breakAndNotify(c, v, from)
}

// valid reports whether a correct member can have made the verdict.
func (v *verdict) valid(c *comm, size int) bool {
	member := func(w int) bool { _, ok := c.rankOf(w); return ok }
	if _, known := reasonNames[v.reason]; !known || v.reason.OneCall() {
		return false
	}
	// A communicator under construction breaks with its parent, so the culprit may be a member of
	// the parent only.
	if v.culprit == NoRank {
		if v.reason != Deadline && v.reason != Corrupt {
			return false
		}
	} else if v.culprit < 0 || v.culprit >= size {
		return false
	}
	if v.pair == nil {
		return v.reason != Corrupt
	}
	return (v.reason == Mismatch || v.reason == Corrupt) && member(int(v.pair.Ranks[0])) && member(int(v.pair.Ranks[1]))
}

// breakMismatched breaks a communicator because a peer made a different call.
func (n *Node) breakMismatched(c *comm, from int, seq uint64, theirs, ours wire.Call) {
	pair := &wire.CallPair{
		Ranks: [2]uint32{uint32(c.members[from]), uint32(n.cfg.Rank)}, Calls: [2]wire.Call{theirs, ours},
	}
	n.breakAndNotify(c, verdict{culprit: c.members[from], reason: Mismatch, seq: seq, pair: pair}, -1)
}

// breakCorrupt breaks a communicator because this rank and a neighbour ended with different bytes. Neither
// rank can tell whose memory is at fault.
func (n *Node) breakCorrupt(c *comm, from int, seq uint64) {
	pair := &wire.CallPair{Ranks: [2]uint32{uint32(n.cfg.Rank), uint32(c.members[from])}}
	n.breakAndNotify(c, verdict{culprit: NoRank, reason: Corrupt, seq: seq, pair: pair}, -1)
}

// info describes a call for error messages.
func (k *call) info() wire.Call {
	switch {
	case k.mail != nil:
		return wire.Call{Kind: k.kind, Root: uint32(k.mail.peer), Bytes: uint64(k.mail.bytes)}
	case k.p2p != nil:
		return k.p2p.Call()
	case k.inc != nil:
		return k.inc.Call()
	}
	return k.plan[0].Call()
}

// infoFor describes a call to a peer for error messages.
func (k *call) infoFor(peer int) wire.Call {
	if k.p2p != nil {
		return k.p2p.CallWith(peer)
	}
	return k.info()
}

// breakComm fails every call that has not completed. It forgets lingering operations: ranks that
// need them learn of the failure too.
func (n *Node) breakComm(c *comm, v verdict) {
	if c.broken != nil {
		return
	}
	c.broken = &v
	for _, k := range slices.Concat(c.calls.all, c.mail.calls.all) {
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

// failCall ends a call with the communicator's verdict: at once if it uses no buffers, otherwise when
// it is quiescent.
func (n *Node) failCall(c *comm, k *call) {
	err := &Error{
		Comm: c.id, Seq: k.seq, Op: k.kind, Phase: step.Queued,
		Culprit: c.broken.culprit, Reason: c.broken.reason, Pair: c.broken.pair, Missing: "everything",
	}
	if !k.running {
		n.endCall(c, k, err)
		return
	}
	st := c.find(k.next())
	if !st.multicasts() && st.mail == nil {
		left, _ := st.pending()
		n.others.End(left)
		n.endReducing(st)
	}
	err.Phase, err.Missing = st.op.Phase(), st.op.Missing(c.name)
	if more := k.rounds - k.round - 1; more > 0 {
		err.Missing += fmt.Sprintf(", and %d more rounds", more)
	}
	st.op.Fail()
	k.failed = err
	n.out = append(n.out, Action{Kind: Quiesce, Comm: c.id, Seq: st.seq})
}

// Cancel breaks a communicator on all ranks because the caller of an operation on it gave up.
func (n *Node) Cancel(comm uint32) error { return n.abort(comm, Cancelled) }

// Abort breaks a communicator on all ranks at the user's request.
func (n *Node) Abort(comm uint32) error { return n.abort(comm, Aborted) }

// Leave breaks a communicator on all ranks because this process leaves the job.
func (n *Node) Leave(comm uint32) error { return n.abort(comm, Left) }

func (n *Node) abort(comm uint32, reason Reason) error {
	c := n.comms[comm]
	if c == nil {
		return fmt.Errorf("%w: %d", ErrComm, comm)
	}
	n.breakAndNotify(c, verdict{culprit: n.cfg.Rank, reason: reason}, -1)
	return nil
}

// Disown closes a communicator that could not be created on all ranks because its parent broke.
// Members that already use it learn the parent's verdict.
func (n *Node) Disown(now step.Time, comm, parent uint32) error {
	if err := n.Inherit(comm, parent); err != nil {
		return err
	}
	return n.RemoveComm(now, comm)
}

// Inherit breaks a communicator with the verdict of another, if that one is broken. Its members then
// learn which rank really failed.
func (n *Node) Inherit(comm, from uint32) error {
	c, f := n.comms[comm], n.comms[from]
	if c == nil || f == nil {
		return fmt.Errorf("%w: %d or %d", ErrComm, comm, from)
	}
	if f.broken != nil {
		n.breakAndNotify(c, f.broken.inherited(n.cfg.Rank), -1)
	}
	return nil
}

// inherited converts a verdict for use on another communicator, on which this rank spreads it. That
// communicator had no mismatched or corrupt call of its own.
func (v *verdict) inherited(rank int) verdict {
	w := verdict{culprit: v.culprit, reason: v.reason}
	if w.reason == Corrupt || w.reason == Mismatch {
		w.reason = Aborted
	}
	if w.culprit == NoRank && w.reason != Deadline {
		w.culprit = rank // the verdict must name a rank that aborts
	}
	return w
}

// Quiesced reports that nothing can touch the buffers of a failed operation any more.
func (n *Node) Quiesced(comm uint32, seq uint64) {
	c := n.comms[comm]
	if c == nil {
		return
	}
	if st := c.find(seq); st != nil && st.call.failed != nil {
		err := st.call.failed
		st.call.failed = nil
		n.endCall(c, st.call, err)
	}
}

// PeerLost reports that the connection to a world rank is gone.
func (n *Node) PeerLost(now step.Time, rank int) { n.declareLost(now, rank, -1) }

// declareLost declares a process lost, forwards the notice, and breaks its communicators.
func (n *Node) declareLost(now step.Time, rank, from int) {
	l := &n.live
	if rank < 0 || rank >= n.cfg.Size || l.dead[rank] {
		return
	}
	l.dead[rank] = true
	l.deaths = append(l.deaths, rank)
	left, right := l.left, l.right
	l.retarget(now)
	peers := append(mcast.AppendPeers(n.connectedPeers(), n.cfg.Rank, n.cfg.Size), left, right)
	n.sendDeaths(l.deaths[len(l.deaths)-1:], peers, from)
	if l.left != left {
		n.sendDeaths(l.deaths, []int{l.left}, -1)
	}
	if l.right != right {
		n.sendDeaths(l.deaths, []int{l.right}, -1)
	}
	for _, c := range n.order {
		if r, member := c.rankOf(rank); member {
			n.breakComm(c, verdict{culprit: rank, reason: Lost})
			n.agreeDead(c, r)
		}
	}
	// If the process was only slow, it learns that it is excluded, and blames no other rank.
	if rank != n.cfg.Rank {
		n.send(rank, &wire.Msg{Kind: wire.MsgDead, Rank: uint32(rank)})
		n.out = append(n.out, Action{Kind: Drop, To: rank})
	}
}

// connectedPeers returns all ranks connected to this one. They learn of a failure from this rank even
// where ring and barrier do not require it. This process may exit because of the failure, and a peer
// that sees only the exit would blame this rank.
func (n *Node) connectedPeers() []int {
	return slices.Sorted(maps.Keys(n.connected))
}

// sendDeaths sends death notices to living peers, except to from.
func (n *Node) sendDeaths(deaths, peers []int, from int) {
	for i, p := range peers {
		if p < 0 || p == from || n.live.dead[p] || slices.Contains(peers[:i], p) {
			continue
		}
		for _, d := range deaths {
			n.send(p, &wire.Msg{Kind: wire.MsgDead, Rank: uint32(d)})
		}
	}
}
