package node

import (
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/allcast/allcast/internal/protocol"
)

type opKey struct {
	comm uint32
	seq  uint64
}

// host is one process: its node and what its driver knows.
type host struct {
	c       *cluster
	id      int
	node    *Node
	dead    bool
	late    bool // it was stopped for so long that others may take it for lost
	stopped bool
	timerAt protocol.Time
	spins   int // timers in a row that did nothing and want to be called again

	inbox                   []*lane // by sender
	grams, nic, sent, reads lane
	quiet, drains           lane
	calls                   map[uint32]*lane
	flying                  map[opKey]int // datagrams on their way here
	ops                     map[opKey]*region
	inSlot                  map[opKey]*region // by communicator and slot, until drained
	undrained               map[uint32]int    // operations of a communicator
	nextSeq                 map[uint32]uint64
	shares                  map[uint32][]*share // calls on a communicator that have not ended, oldest first
	lost                    []int               // the dead, in the order in which the node said so
	sends                   [64]int             // messages by kind
	settled                 map[uint64]*Agreed  // by request
	removed                 []uint32
}

func newHost(c *cluster, n *Node) *host {
	h := &host{
		c: c, id: n.cfg.Rank, node: n, timerAt: n.NextTimer(), calls: map[uint32]*lane{}, flying: map[opKey]int{},
		ops: map[opKey]*region{}, inSlot: map[opKey]*region{}, undrained: map[uint32]int{}, nextSeq: map[uint32]uint64{}, shares: map[uint32][]*share{},
	}
	for from := range n.cfg.Size {
		h.inbox = append(h.inbox, &lane{kind: laneMsg, at: h, from: from})
	}
	h.grams, h.nic = lane{kind: laneGram, at: h}, lane{kind: laneNIC, at: h}
	h.sent, h.reads = lane{kind: laneSent, at: h}, lane{kind: laneRead, at: h}
	h.quiet, h.drains = lane{kind: laneQuiet, at: h}, lane{kind: laneDrain, at: h}
	return h
}

func (h *host) lanes() []*lane {
	all := append([]*lane{&h.grams, &h.nic, &h.sent, &h.reads, &h.quiet, &h.drains}, h.inbox...)
	for _, id := range slices.Sorted(maps.Keys(h.calls)) { // nothing may depend on a map's order
		all = append(all, h.calls[id])
	}
	return all
}

// later queues a call, to be made after those queued before it.
func (h *host) later(j *job) {
	if h.calls[j.comm] == nil {
		h.calls[j.comm] = &lane{kind: laneCall, at: h}
	}
	h.c.push(h.calls[j.comm], item{job: j})
}

// start makes a call.
func (h *host) start(j *job) {
	s := newShare(j, h.id)
	h.c.open++
	s.seq = h.nextSeq[j.comm]
	h.nextSeq[j.comm] += uint64(len(j.plan))
	h.shares[j.comm] = append(h.shares[j.comm], s)
	if err := h.node.Start(h.c.now, j.comm, j.req, j.plan); err != nil {
		h.c.t.Fatalf("rank %d could not start: %v", h.id, err)
	}
	h.act()
}

func (h *host) timer() {
	h.node.Timer(h.c.now)
	acted := h.act()
	if h.spins++; acted || h.timerAt > h.c.now {
		h.spins = 0
	}
	if h.spins > 2 {
		h.c.t.Fatalf("rank %d: its timer fires for ever at %d\n%s", h.id, h.c.now, h.c.dump())
	}
}

func (h *host) message(from int, it item) {
	if it.eof {
		h.node.PeerLost(h.c.now, from)
		return
	}
	m, err := protocol.ParseMsg(it.msg)
	if err != nil {
		h.c.t.Fatalf("rank %d to %d: %v", from, h.id, err)
	}
	h.node.Message(h.c.now, from, &m)
}

// chunk hands a datagram to the node and its payload to where the node says.
func (h *host) chunk(it *item) bool {
	p, ok := h.node.Chunk(h.c.now, it.comm, it.sub, it.imm, len(it.payload))
	if !ok {
		return false
	}
	r := h.ops[opKey{it.comm, p.Seq}]
	switch {
	case r == nil || r.state != isOpen:
		h.c.t.Fatalf("rank %d places a chunk in operation %d, which is not open", h.id, p.Seq)
	case p.Seq != it.seq:
		h.c.t.Fatalf("rank %d places a chunk of operation %d in operation %d", h.id, it.seq, p.Seq)
	}
	if off, _, _ := r.geo.Locate(it.sub, it.psn); off != p.Off {
		h.c.t.Fatalf("rank %d: chunk %d of subgroup %d goes to %d, want %d", h.id, it.psn, it.sub, p.Off, off)
	}
	copy(r.share.recv[p.Off:], it.payload)
	return true
}

// leave is a chunk leaving the send buffer, in as many copies as arrive.
func (h *host) leave(it item) {
	c := h.c
	r := h.ops[it.op()]
	if r.state != isOpen {
		if !c.hurt {
			c.t.Fatalf("rank %d sends operation %d from a buffer that is free", h.id, it.seq)
		}
		return
	}
	_, at, n := r.geo.Locate(it.sub, it.psn)
	it.payload = append([]byte(nil), r.share.send[at:at+int64(n)]...)
	c.push(&h.sent, item{comm: it.comm, seq: it.seq, n: 1})
	for _, m := range c.comms[it.comm] {
		to := c.hosts[m]
		if m == h.id || to.dead || (c.rng != nil && c.rng.Float64() < c.loss) {
			continue
		}
		if to.ops[it.op()] == nil {
			c.t.Fatalf("rank %d sends operation %d, for which rank %d is not ready", h.id, it.seq, m)
		}
		f := goesOn
		if c.fate != nil {
			f = c.fate(m, &it)
		}
		switch f {
		case goesOn:
			c.push(&to.grams, it)
		case isKept:
			c.kept = append(c.kept, kept{m, it})
		}
	}
}

// read serves a read from the peer's receive buffer.
func (h *host) read(it item) {
	c := h.c
	own, peer := h.ops[it.op()], c.hosts[it.to].ops[it.op()]
	if own.state != isOpen || peer == nil || peer.state != isOpen || c.hosts[it.to].dead {
		if !c.hurt {
			c.t.Fatalf("rank %d reads from rank %d in operation %d, but a buffer is free", h.id, it.to, it.seq)
		}
		return // refused: the reader's own failure is on its way
	}
	off, n := own.geo.Span(it.sub, it.psn, it.n)
	copy(own.share.recv[off:off+n], peer.share.recv[off:off+n])
	h.node.ReadDone(c.now, it.comm, it.seq, it.sub, it.psn, it.n)
}

// fill writes what a rank contributes to a job.
func fill(b []byte, req uint64, rank int) {
	r := rand.NewPCG(req, uint64(rank))
	for i := range b {
		b[i] = byte(r.Uint64())
	}
}
