package node

import (
	"slices"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// A small call that runs point to point is eager: its data goes to ranks that have not
// made the call yet, and who only sends is done without having heard of them. So
// that they need not keep more than a little, nobody gets further ahead of a rank than
// it knows how far that rank is, and lead calls more. A rank tells how far it is before
// that happens.
const lead = 8

// EagerLimit is the size up to which point-to-point calls should be eager (Config.Eager).
const EagerLimit = 256 << 10

// EagerSegments is how many segments an eager call may be sent in: a rank that has not made the call
// keeps them one by one, and each takes memory besides its bytes.
const EagerSegments = 256

func (n *Node) isEager(k *call) bool {
	return k.p2p != nil && n.cfg.Eager > 0 && k.p2p.Bytes <= n.cfg.Eager && k.p2p.Segments <= EagerSegments
}

// eager makes a call eager if it is to be.
func (n *Node) eager(c *comm, k *call, cfg *p2p.Config) {
	if !n.isEager(k) {
		return
	}
	if c.reached == nil {
		c.reached, c.told = make([]uint64, len(c.members)), make([]uint64, len(c.members))
		c.ahead = func(seq uint64, peer int) bool { return seq < c.reached[peer]+lead }
		c.owes = func(seq uint64, peer int) bool { return seq >= c.told[peer]+lead/2 }
	}
	cfg.Ahead, cfg.Owes = c.ahead, c.owes
}

// tells notes that a rank learns from us that we have begun a call.
func (c *comm) tells(rank int, seq uint64) {
	if c.told != nil {
		c.told[rank] = max(c.told[rank], seq+1)
	}
}

// noteEager remembers what an eager call was: ranks may only now make it when we have
// forgotten it.
func (n *Node) noteEager(c *comm, k *call, slot uint32) {
	if n.cfg.Eager == 0 {
		return
	}
	if c.eager == nil {
		c.eager = make([]uint64, len(c.slots))
	}
	c.eager[slot] = 0
	if n.isEager(k) {
		c.eager[slot] = k.p2p.Digest
	}
}

// eagerlyDone reports whether a greeting is for a call that we ended without it, and
// that it is the same call.
func (c *comm) eagerlyDone(m *wire.Msg) bool {
	slot := c.layout.Slot(m.Seq)
	if c.eager == nil || m.Kind != wire.MsgReady {
		return false
	}
	// Longer ago than there are slots, nobody remembers what it was.
	return int64(m.Seq) < c.lastSeq[slot] || int64(m.Seq) == c.lastSeq[slot] && c.eager[slot] == m.Digest
}

// begun learns that a rank has begun a call: we may be further ahead.
func (n *Node) begun(now step.Time, c *comm, rank int, seq uint64) {
	if c.reached == nil || seq < c.reached[rank] || seq >= c.nextSeq+window {
		return
	}
	c.reached[rank] = seq + 1
	waits := func(st *opState) bool {
		return st.pp != nil && st.seq > seq && st.op.Phase() == step.Transfer
	}
	if !slices.ContainsFunc(c.live, waits) {
		return // as nearly always
	}
	for _, st := range slices.Clone(c.live) { // it may change
		if waits(st) {
			n.do(c, st, st.pp.Step(now, step.Event{Kind: step.EvTimer}, n.steps[:0]))
		}
	}
}

// Early reports whether data of an operation is for a call that this rank has not
// begun, and is small enough to be kept until it does.
func (n *Node) Early(from int, comm uint32, seq uint64, length int64) bool {
	c := n.comms[comm]
	if c == nil || c.broken != nil || length > n.cfg.Eager {
		return false
	}
	_, member := c.rankOf(from)
	if st := c.find(seq); st != nil && !st.open {
		return member && st.pp != nil
	}
	return member && int64(seq) > c.lastSeq[c.layout.Slot(seq)] && seq < c.nextSeq+window
}
