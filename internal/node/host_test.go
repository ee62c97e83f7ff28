package node

import (
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
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
	timerAt step.Time
	spins   int // timers in a row that did nothing and want to be called again

	inbox                   []*lane // by sender
	grams, nic, sent, reads lane
	opens, reports, claims  lane
	quiet, drains           lane
	workers                 intakes
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
		workers: newIntakes(n.cfg),
	}
	for from := range n.cfg.Size {
		h.inbox = append(h.inbox, &lane{kind: laneMsg, at: h, from: from})
	}
	h.grams, h.nic = lane{kind: laneGram, at: h}, lane{kind: laneNIC, at: h}
	h.sent, h.reads = lane{kind: laneSent, at: h}, lane{kind: laneRead, at: h}
	h.quiet, h.drains = lane{kind: laneQuiet, at: h}, lane{kind: laneDrain, at: h}
	h.opens, h.reports, h.claims = lane{kind: laneOpen, at: h}, lane{kind: laneReport, at: h}, lane{kind: laneClaim, at: h}
	return h
}

func (h *host) lanes() []*lane {
	all := append([]*lane{&h.grams, &h.nic, &h.sent, &h.reads, &h.opens, &h.reports, &h.claims, &h.quiet, &h.drains}, h.inbox...)
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
	m, err := wire.ParseMsg(it.msg)
	if err != nil {
		h.c.t.Fatalf("rank %d to %d: %v", from, h.id, err)
	}
	h.node.Message(h.c.now, from, &m)
}

// chunk hands a datagram to the receive worker, which reports at once.
func (h *host) chunk(it *item) bool {
	placed := h.workers.take(it.comm, it.sub, it.imm, len(it.payload), func(p *mcast.Placement, psn uint32, off int64) {
		h.place(it, p, psn, off)
	})
	h.node.Received(h.c.now, h.workers.sub(it.sub).Flush(), false)
	return placed
}

// place puts a payload where the worker says.
func (h *host) place(it *item, p *mcast.Placement, psn uint32, off int64) {
	r := h.ops[opKey{it.comm, p.Seq}]
	switch {
	case r == nil || r.state != isOpen:
		h.c.t.Fatalf("rank %d places a chunk in operation %d, which is not open", h.id, p.Seq)
	case p.Seq != it.seq || psn != it.psn:
		h.c.t.Fatalf("rank %d places chunk %d of operation %d in operation %d, as %d", h.id, it.psn, it.seq, p.Seq, psn)
	}
	if want, _, _ := r.geo.Locate(it.sub, it.psn); off != want {
		h.c.t.Fatalf("rank %d: chunk %d of subgroup %d goes to %d, want %d", h.id, it.psn, it.sub, off, want)
	}
	copy(r.share.recv[off:], it.payload)
}

// datagram hands a datagram to the receive worker, which reports when it gets to it.
func (h *host) datagram(it *item) {
	if h.c.rng == nil {
		h.chunk(it)
		return
	}
	h.workers.take(it.comm, it.sub, it.imm, len(it.payload), func(p *mcast.Placement, psn uint32, off int64) {
		h.place(it, p, psn, off)
	})
	if len(h.grams.items) == 0 || h.c.rng.IntN(4) == 0 {
		for _, sub := range slices.Sorted(maps.Keys(h.workers.subs)) {
			h.flush(sub)
		}
	}
}

func (h *host) flush(sub int) {
	if r := h.workers.sub(sub).Flush(); r != nil {
		h.c.push(&h.reports, item{report: r})
	}
}

// claim lets the receive worker claim chunks for a read.
func (h *host) claim(it item) {
	r := h.ops[it.op()]
	if r.state != isOpen {
		return
	}
	it.ranges, _ = h.workers.sub(it.sub).Claim(r.placements[it.sub], it.ranges, nil)
	h.flush(it.sub)
	h.c.push(&h.reads, it)
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
	for _, q := range it.ranges {
		if own.state != isOpen || peer == nil || peer.state != isOpen || c.hosts[it.to].dead {
			if !c.hurt {
				c.t.Fatalf("rank %d reads from rank %d in operation %d, but a buffer is free", h.id, it.to, it.seq)
			}
			return // refused: the reader's own failure is on its way
		}
		off, n := own.geo.Span(it.sub, q.PSN, q.N)
		copy(own.share.recv[off:off+n], peer.share.recv[off:off+n])
		own.placements[it.sub].Finish(q.PSN, q.N)
	}
	h.node.ReadDone(c.now, it.comm, it.seq, it.sub, it.ranges)
}

// fill writes what a rank contributes to a job.
func fill(b []byte, req uint64, rank int) {
	r := rand.NewPCG(req, uint64(rank))
	for i := range b {
		b[i] = byte(r.Uint64())
	}
}
