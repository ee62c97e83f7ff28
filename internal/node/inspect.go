package node

import (
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// A CommView is what people are told of a communicator. Ranks are world ranks.
type CommView struct {
	ID      uint32
	Rank    int // ours in it
	Size    int
	Calls   uint64 // so many numbers were given to operations
	Broken  bool
	Culprit int    // of what broke it, or NoRank
	Reason  Reason // why it is broken
	Open    []CallView
	Linger  int // operations that only relay for others
}

// A CallView is what people are told of a call that has not ended.
type CallView struct {
	Req       uint64
	Kind      wire.CallKind
	Seq       uint64 // of the round that runs or comes next
	Round     int
	Rounds    int
	Phase     step.Phase
	Start     step.Time
	WaitingOn int // ourselves: for nobody else
	Missing   string
}

// Inspect describes what the process is at, oldest calls first.
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
	for _, k := range c.calls {
		v.Open = append(v.Open, c.viewCall(k))
	}
	for _, st := range c.live {
		if st.done {
			v.Linger++
		}
	}
	return v
}

// viewCall describes a call. One that is queued waits for what the oldest waits for.
func (c *comm) viewCall(k *call) CallView {
	v := CallView{
		Req: k.req, Kind: k.kind, Seq: k.next(), Round: k.round, Rounds: k.rounds, Start: k.startAt,
		WaitingOn: c.members[c.waitingOn()], Missing: "everything",
	}
	if st := c.find(k.next()); k.running && st != nil {
		v.Phase, v.WaitingOn, v.Missing = st.op.Phase(), c.members[st.op.WaitingOn()], st.op.Missing(c.name)
	}
	return v
}

// NextSeq is the number that the next operation of a communicator gets.
func (n *Node) NextSeq(comm uint32) uint64 {
	if c := n.comms[comm]; c != nil {
		return c.nextSeq
	}
	return 0
}

// Deaths lists the world ranks that are lost, in the order we learned of them.
func (n *Node) Deaths() []int { return append([]int(nil), n.live.deaths...) }

// turned tells who watches that an operation has changed phase.
func (n *Node) turned(c *comm, st *opState) {
	if n.cfg.Turned == nil {
		return
	}
	if p := st.op.Phase(); p != st.seen {
		n.cfg.Turned(c.id, st.seq, st.seen, p)
		st.seen = p
	}
}
