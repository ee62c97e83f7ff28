package node

import "github.com/allcast/allcast/internal/protocol"

// Chunks learns that a receive worker has put n consecutive chunks of a round in
// place, each for the first time (protocol.Lane): Chunk for drivers that place
// first and report later.
func (n *Node) Chunks(now protocol.Time, comm uint32, seq uint64, sub int, psn, chunks uint32) {
	c := n.comms[comm]
	if c == nil {
		return
	}
	st := c.find(seq)
	if st == nil || st.mc == nil {
		n.stats.Stale += uint64(chunks)
		return
	}
	if steps := st.mc.Chunks(now, sub, psn, chunks, n.steps[:0]); len(steps) > 0 {
		n.do(now, c, st, steps)
	}
}

// Ignored is what receive workers made of datagrams that placed nothing.
type Ignored struct {
	Duplicates uint64 // the chunk was there
	Late       uint64 // a read had claimed the chunk
	Foreign    uint64 // no chunk of the operation
	Stale      uint64 // no operation that is open
}

// Ignored learns of datagrams that were taken off the receive queues and placed
// nothing; late ones mean that the cutoff of the communicator was too early.
func (n *Node) Ignored(now protocol.Time, comm uint32, i Ignored) {
	n.pool.Took(now, i.Duplicates+i.Late+i.Foreign+i.Stale)
	n.stats.Duplicates += i.Duplicates
	n.stats.Late += i.Late
	n.stats.Foreign += i.Foreign
	n.stats.Stale += i.Stale
	if c := n.comms[comm]; c != nil && i.Late > 0 {
		c.est.Late(now)
	}
}

// Expect says where the nth piece from a peer will belong once it is complete, if
// it came now: with Hold, not before its turn; otherwise it may be placed or added
// as it comes in, and Data is called at its end.
func (n *Node) Expect(from int, comm uint32, seq uint64, nth uint32, length int64) (p Place, ok bool) {
	c := n.comms[comm]
	if c == nil {
		return Place{}, false
	}
	r, member := c.rankOf(from)
	st := c.find(seq)
	if !member || st == nil || st.pp == nil {
		return Place{}, false
	}
	recv, ok := st.pp.Expect(r, nth, length)
	return Place{Seq: seq, Off: recv.Off, Reduce: recv.Reduce, Hold: recv.Hold}, ok
}

// Queued learns that datagrams wait in the receive queues: what operations miss may
// be among them, and is not taken for lost yet.
func (n *Node) Queued(now protocol.Time) {
	for _, c := range n.order {
		for _, st := range c.live {
			if st.mc != nil {
				st.mc.Queued(now)
			}
		}
	}
}

// Heard learns that a peer is alive: something came from it that is not for the
// node, or not yet.
func (n *Node) Heard(now protocol.Time, from int) { n.live.heard(now, from) }
