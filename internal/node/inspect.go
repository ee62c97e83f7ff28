package node

import (
	"fmt"
	"slices"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// A CommView describes a communicator for people. Ranks are world ranks.
type CommView struct {
	ID      uint32
	Rank    int // rank of this process in it
	Size    int
	Calls   uint64 // number of operations started so far
	Broken  bool
	Culprit int    // rank that broke it, or NoRank
	Reason  Reason // reason why it is broken
	Open    []CallView
	Linger  int // number of operations that only relay for other ranks
}

// A CallView describes an unfinished call for people.
type CallView struct {
	Req       uint64
	Kind      wire.CallKind
	Seq       uint64 // number of the current or next round
	Round     int
	Rounds    int
	Phase     step.Phase
	Start     step.Time
	WaitingOn int // this rank if the call waits for no other rank
	Missing   string
}

// Inspect describes the state of the process, oldest calls first.
func (n *Node) Inspect() []CommView {
	all := make([]CommView, 0, len(n.order))
	for _, c := range n.order {
		all = append(all, c.view())
	}
	return all
}

func (c *comm) view() CommView {
	v := CommView{ID: c.id, Rank: c.rank, Size: len(c.members), Calls: c.nextSeq, Culprit: NoRank}
	if c.broken != nil {
		v.Broken, v.Culprit, v.Reason = true, c.broken.culprit, c.broken.reason
	}
	for _, k := range slices.Concat(c.calls.all, c.mail.calls.all) {
		v.Open = append(v.Open, c.viewCall(k))
	}
	for _, st := range c.live {
		if st.done {
			v.Linger++
		}
	}
	return v
}

// viewCall describes a call. A queued call waits for the same rank as the oldest call.
func (c *comm) viewCall(k *call) CallView {
	v := CallView{
		Req: k.req, Kind: k.kind, Seq: k.next(), Round: k.round, Rounds: k.rounds, Start: k.startAt,
		WaitingOn: c.members[c.waitingOn(c.calls.oldest())], Missing: "everything",
	}
	if m := k.mail; m != nil {
		v.WaitingOn, v.Missing = c.members[c.rank], fmt.Sprintf("a message with tag %d", m.tag)
		if m.peer != AnyRank {
			v.WaitingOn = c.members[m.peer]
		}
	}
	if st := c.find(k.next()); k.running && st != nil {
		v.Phase, v.WaitingOn, v.Missing = st.op.Phase(), c.members[st.op.WaitingOn()], st.op.Missing(c.name)
	}
	return v
}

// NextSeq returns the number of the next operation of a communicator.
func (n *Node) NextSeq(comm uint32) uint64 {
	if c := n.comms[comm]; c != nil {
		return c.nextSeq
	}
	return 0
}

// NextRound returns the number of the first operation of a communicator that has not started. Datagrams of an
// eager operation from that number on are early.
func (n *Node) NextRound(comm uint32) uint64 {
	c := n.comms[comm]
	if c == nil {
		return 0
	}
	for _, k := range c.calls.all {
		if !k.running {
			return k.next()
		}
	}
	return c.nextSeq
}

// Deaths returns the lost world ranks in the order in which this rank learned of them.
func (n *Node) Deaths() []int { return append([]int(nil), n.live.deaths...) }

// reportPhase calls Config.Turned if the phase of a round has changed.
func (n *Node) reportPhase(c *comm, st *round) {
	if n.cfg.Turned == nil {
		return
	}
	if p := st.op.Phase(); p != st.reported {
		n.cfg.Turned(c.id, st.seq, st.reported, p)
		st.reported = p
	}
}
