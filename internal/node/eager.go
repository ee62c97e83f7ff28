package node

import (
	"slices"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// A small point-to-point call is eager: a rank sends its data to ranks that have not made the call
// yet, and completes without an answer if it only sends. A sender runs at most eagerLead calls ahead
// of the last call that it knows a receiver has started. This limits the data that receivers keep. A
// receiver reports its progress before a sender reaches that limit.
const eagerLead = 8

// EagerLimit is the recommended maximum size of eager calls (Config.Eager).
const EagerLimit = 256 << 10

// EagerSegments limits the segments of an eager call. A rank that has not made the call keeps the
// segments one by one, and each takes memory besides its bytes.
const EagerSegments = 256

// eagerState is the part of a communicator that concerns eager calls. The slices are nil until the first
// of them.
type eagerState struct {
	digests  []uint64                        // by slot: digest of the last call if it was eager, otherwise 0
	reached  []uint64                        // by rank: 1 + the last call that it is known to have started
	informed []uint64                        // by rank: 1 + the last call that it knows this rank has started
	ahead    func(seq uint64, peer int) bool // callback for p2p.Config.Ahead
	owes     func(seq uint64, peer int) bool // callback for p2p.Config.Owes
}

func (n *Node) isEager(k *call) bool {
	p := k.p2p
	return p != nil && n.cfg.Eager > 0 && !p.Kind.Private() && p.Bytes <= n.cfg.Eager && p.Segments <= EagerSegments
}

// configureEager makes a call eager if it qualifies.
func (n *Node) configureEager(c *comm, k *call, cfg *p2p.Config) {
	if !n.isEager(k) {
		return
	}
	e := &c.eager
	if e.reached == nil {
		e.reached, e.informed = make([]uint64, len(c.members)), make([]uint64, len(c.members))
		e.ahead = func(seq uint64, peer int) bool { return seq < e.reached[peer]+eagerLead }
		e.owes = func(seq uint64, peer int) bool { return seq >= e.informed[peer]+eagerLead/2 }
	}
	cfg.Ahead, cfg.Owes = e.ahead, e.owes
}

// recordInformed records that a message tells a rank that this rank has started a call.
func (e *eagerState) recordInformed(rank int, seq uint64) {
	if e.informed != nil {
		e.informed[rank] = max(e.informed[rank], seq+1)
	}
}

// rememberEager records the digest of an eager call: other ranks may make the call only after this
// rank has dropped it.
func (n *Node) rememberEager(c *comm, k *call, slot uint32) {
	if n.cfg.Eager == 0 {
		return
	}
	if c.eager.digests == nil {
		c.eager.digests = make([]uint64, len(c.slots))
	}
	c.eager.digests[slot] = 0
	if n.isEager(k) {
		c.eager.digests[slot] = k.p2p.Digest
	}
}

// completedEagerly reports whether a greeting belongs to the same call that this rank has already
// completed eagerly.
func (c *comm) completedEagerly(m *wire.Msg) bool {
	slot := c.layout.Slot(m.Seq)
	if m.Kind == wire.MsgEagerFetch {
		_, same := c.window.Recall(m.Seq, m.Digest)
		return same && int64(m.Seq) <= c.lastSeq[slot] // the peer has got the chunks meanwhile
	}
	if c.eager.digests == nil || m.Kind != wire.MsgReady {
		return false
	}
	// Calls older than the number of slots have no record and are accepted.
	return int64(m.Seq) < c.lastSeq[slot] || int64(m.Seq) == c.lastSeq[slot] && c.eager.digests[slot] == m.Digest
}

// recordReached records that a rank has started a call. Calls that waited for it may then proceed.
func (n *Node) recordReached(now step.Time, c *comm, rank int, seq uint64) {
	if c.eager.reached == nil || seq < c.eager.reached[rank] || seq >= c.nextSeq+seqWindow {
		return
	}
	c.eager.reached[rank] = seq + 1
	mayProceed := func(st *round) bool {
		return st.pp != nil && st.seq > seq && st.op.Phase() == step.Transfer
	}
	if !slices.ContainsFunc(c.live, mayProceed) {
		return // the common case
	}
	for _, st := range slices.Clone(c.live) { // Step may change c.live
		if mayProceed(st) {
			n.execute(c, st, st.pp.Step(now, step.Event{Kind: step.EvTimer}, n.steps[:0]))
		}
	}
}

// Early reports whether data belongs to a call that this rank has not started, and is small enough
// to be kept until it does.
func (n *Node) Early(from int, comm uint32, seq uint64, length int64) bool {
	c := n.comms[comm]
	if c == nil || c.broken != nil {
		return false
	}
	rank, member := c.rankOf(from)
	if _, isMail := wire.MailSender(seq); isMail {
		return member && c.earlyMail(rank, seq, length)
	}
	if length > n.cfg.Eager {
		return false
	}
	if st := c.find(seq); st != nil && !st.opened {
		return member && st.pp != nil
	}
	return member && int64(seq) > c.lastSeq[c.layout.Slot(seq)] && seq < c.nextSeq+seqWindow
}
