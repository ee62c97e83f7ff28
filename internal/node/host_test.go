package node

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

type opKey struct {
	comm uint32
	seq  uint64
}

// host is one process: its node and the state of its driver.
type host struct {
	*clustertest.Rank
	c         *cluster
	node      *Node
	late      bool // whether it was stopped for so long that others may take it for lost
	timerAt   step.Time
	workers   intakes
	rounds    map[opKey]*hostRound
	inSlot    map[opKey]*hostRound // by communicator and slot, until drained
	waiting   map[uint32]int       // by communicator: operations that are not drained
	nextSeq   map[uint32]uint64    // by communicator
	shares    map[uint32][]*share  // calls on a communicator that have not ended, oldest first
	queued    int                  // calls that are still to be made
	lost      []int                // dead ranks, in the order in which the node found out
	sends     [256]int             // messages by kind
	settled   map[uint64]*Agreed   // by request
	removed   []uint32
	early     map[opKey][]piece // pieces for calls that were not made yet
	peakEarly int               // highest number of operations with such pieces
	kept      map[heldKey][]byte
	keptGrams map[opKey][]datagram // of eager multicasts that this rank has not opened yet
	queues
	mailHost
}

// queues are what can happen at a host.
type queues struct {
	inbox   []*clustertest.Queue[[]byte] // by sender; nil: the connection is gone
	pieces  []*clustertest.Queue[piece]  // by sender
	calls   map[uint32]*clustertest.Queue[*job]
	grams   *clustertest.Queue[datagram]
	nic     *clustertest.Queue[datagram] // chunks to multicast
	puts    *clustertest.Queue[Action]   // pieces to send
	sent    *clustertest.Queue[opKey]    // chunks that have left
	opens   *clustertest.Queue[opKey]    // rounds whose buffers are being prepared
	reports *clustertest.Queue[*mcast.Report]
	claims  *clustertest.Queue[readRequest]
	reads   *clustertest.Queue[readRequest]
	quiet   *clustertest.Queue[opKey] // failed operations that the fabric has released
	drains  *clustertest.Queue[opKey] // closed operations whose datagrams are gone
	recalls *clustertest.Queue[piece] // early pieces whose call was made
	results *clustertest.Queue[sumGram]
	fetches *clustertest.Queue[Action] // chunks to make without aggregators
	served  *clustertest.Queue[fetched]
}

type datagram struct {
	opKey
	sub     int
	psn     uint32
	imm     uint32
	payload []byte
	eager   bool
}

type readRequest struct {
	opKey
	to, sub int
	ranges  []wire.Range
}

func newHost(c *cluster, n *Node) *host {
	h := &host{
		c: c, node: n, timerAt: n.NextTimer(), workers: newIntakes(n.cfg), rounds: map[opKey]*hostRound{},
		inSlot: map[opKey]*hostRound{}, waiting: map[uint32]int{}, nextSeq: map[uint32]uint64{},
		shares: map[uint32][]*share{},
		early:  map[opKey][]piece{}, kept: map[heldKey][]byte{}, keptGrams: map[opKey][]datagram{},
	}
	h.Rank = c.Add(n.cfg.Rank, h)
	h.queues = queues{
		calls:   map[uint32]*clustertest.Queue[*job]{},
		grams:   queueOf(h, "datagram", h.ID, h.datagram),
		nic:     queueOf(h, "multicast", h.ID, h.leave),
		puts:    queueOf(h, "put", h.ID, h.putLeaves),
		sent:    queueOf(h, "sent", h.ID, func(k opKey) { n.Sent(c.Now, k.comm, k.seq, 1) }),
		opens:   queueOf(h, "open", h.ID, h.opened),
		reports: queueOf(h, "report", h.ID, func(r *mcast.Report) { n.Received(c.Now, r, false) }),
		claims:  queueOf(h, "claim", h.ID, h.claim),
		reads:   queueOf(h, "read", h.ID, h.read),
		quiet: queueOf(h, "quiet", h.ID, func(k opKey) {
			if x := h.transits[k]; x != nil {
				x.state = quiet
			} else {
				h.rounds[k].state = quiet
			}
			n.Quiesced(k.comm, k.seq)
		}),
		drains: queueOf(h, "drain", h.ID, func(k opKey) {
			if r := h.rounds[k]; r != nil {
				r.drained = true
			}
			delete(h.transits, k)
			h.waiting[k.comm]--
			n.Drained(c.Now, k.comm, k.seq)
		}),
		recalls: queueOf(h, "recall", h.ID, h.piece),
		results: queueOf(h, "result", -1, h.result),
		fetches: queueOf(h, "fetch", h.ID, h.fetch),
		served:  queueOf(h, "fetched", h.ID, h.fetched),
	}
	h.mailHost = newMailHost(h)
	h.drains.Ready = func() bool {
		same := func(d datagram) bool { return d.opKey == h.drains.Items()[0] }
		return !slices.ContainsFunc(h.grams.Items(), same) && !slices.ContainsFunc(h.grams.Kept(), same)
	}
	h.grams.Fate = func(d datagram) clustertest.Fate {
		if c.fate == nil {
			return clustertest.Deliver
		}
		return c.fate(h.ID, &d)
	}
	for from := range n.cfg.Size {
		h.inbox = append(h.inbox, queueOf(h, "message", from, func(b []byte) { h.message(from, b) }))
		h.pieces = append(h.pieces, queueOf(h, "piece", from, h.piece))
	}
	return h
}

// queueOf makes a queue of events after which the node wants something done.
func queueOf[E any](h *host, kind string, from int, do func(E)) *clustertest.Queue[E] {
	return clustertest.NewQueue(h.c.Cluster, kind, h.Rank, from, func(e E) {
		do(e)
		h.act()
	})
}

func (h *host) NextTimer() step.Time { return h.timerAt }

func (h *host) Timer() bool {
	h.node.Timer(h.c.Now)
	return h.act()
}

func (h *host) Check() {}

// Done reports whether all calls were made and have ended.
func (h *host) Done() bool {
	for _, shares := range h.shares {
		if len(shares) > 0 {
			return false
		}
	}
	for _, x := range h.mails {
		if !x.ended {
			return false
		}
	}
	return h.queued == 0
}

func (h *host) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lost %v, timer at %d", h.lost, h.timerAt)
	for _, co := range h.node.order {
		for _, k := range slices.Concat(co.calls.all, co.mail.calls.all) {
			fmt.Fprintf(&b, "\n  communicator %d call %d, round %d of %d, running %v, failed %v",
				co.id, k.seq, k.round, len(k.plan), k.running, k.failed)
		}
		for _, st := range co.live {
			fmt.Fprintf(&b, "\n  communicator %d operation %d: %v, waits for %d, missing %s",
				co.id, st.seq, st.op.Phase(), st.op.WaitingOn(), st.op.Missing(nil))
		}
	}
	return b.String()
}

// later queues a call after those queued before it.
func (h *host) later(j *job) {
	if h.calls[j.comm] == nil {
		h.calls[j.comm] = queueOf(h, "call", h.ID, func(j *job) {
			h.queued--
			h.start(j)
		})
	}
	h.queued++
	h.calls[j.comm].Push(j)
}

func (h *host) message(from int, b []byte) {
	if b == nil {
		h.node.PeerLost(h.c.Now, from)
		return
	}
	m, err := wire.ParseMsg(b)
	if err != nil {
		h.c.Failf("rank %d to %d: %v", from, h.ID, err)
	}
	h.node.Message(h.c.Now, from, &m)
}

func (h *host) opened(k opKey) {
	if r := h.rounds[k]; r.state == isOpen { // it may have failed meanwhile
		r.took, r.opened = h.c.Now, true
	}
	h.node.Opened(h.c.Now, k.comm, k.seq, false)
	for _, d := range h.keptGrams[k] {
		h.grams.Push(d)
	}
	delete(h.keptGrams, k)
}

// take hands a datagram to the receive worker and reports whether it was placed.
func (h *host) take(d *datagram) bool {
	if d.eager && h.rounds[d.opKey] == nil {
		h.keptGrams[d.opKey] = append(h.keptGrams[d.opKey], *d)
		return false
	}
	return h.workers.take(d.comm, d.sub, d.imm, len(d.payload), func(p *mcast.Placement, psn uint32, off int64) {
		r := h.rounds[opKey{d.comm, p.Seq}]
		switch {
		case r == nil || r.state != isOpen:
			h.c.Failf("rank %d places a chunk in operation %d, which is not open", h.ID, p.Seq)
		case p.Seq != d.seq || psn != d.psn:
			h.c.Failf("rank %d places chunk %d of operation %d in operation %d, as %d", h.ID, d.psn, d.seq, p.Seq, psn)
		}
		if want, _, _ := r.geo.Locate(d.sub, d.psn); off != want {
			h.c.Failf("rank %d: chunk %d of subgroup %d goes to %d, want %d", h.ID, d.psn, d.sub, off, want)
		}
		copy(r.share.recv[off:], d.payload)
	})
}

// chunk hands a datagram to the receive worker, which reports at once.
func (h *host) chunk(d *datagram) bool {
	ok := h.take(d)
	if r := h.workers.sub(d.sub).Flush(); r != nil {
		h.node.Received(h.c.Now, r, false)
	}
	return ok
}

// datagram hands a datagram to the receive worker. In random runs the worker reports later.
func (h *host) datagram(d datagram) {
	if !h.c.random {
		h.chunk(&d)
		return
	}
	h.take(&d)
	if h.grams.Len() == 0 || h.c.Rand.IntN(4) == 0 {
		for _, sub := range slices.Sorted(maps.Keys(h.workers.subs)) {
			h.flush(sub)
		}
	}
}

func (h *host) flush(sub int) {
	if r := h.workers.sub(sub).Flush(); r != nil {
		h.reports.Push(r)
	}
}

// claim lets the receive worker claim chunks for a read.
func (h *host) claim(q readRequest) {
	r := h.rounds[q.opKey]
	if r.state != isOpen {
		return
	}
	q.ranges, _ = h.workers.sub(q.sub).Claim(r.placements[q.sub], q.ranges, nil)
	h.flush(q.sub)
	h.reads.Push(q)
}

// leave is a chunk that leaves the send buffer, in as many copies as arrive.
func (h *host) leave(d datagram) {
	c, r := h.c, h.rounds[d.opKey]
	if r.state != isOpen && r.copied == nil {
		if !c.hurt {
			c.Failf("rank %d sends operation %d from a buffer that is free", h.ID, d.seq)
		}
		return
	}
	off, at, n := r.geo.Locate(d.sub, d.psn)
	if d.eager {
		d.payload = slices.Clone(r.copied[at : at+int64(n)])
	} else if r.share.job.algo == "inc" {
		d.payload = slices.Clone(r.share.recv[off : off+int64(n)]) // the Allgather of an Allreduce
	} else {
		d.payload = slices.Clone(r.share.send[at : at+int64(n)])
	}
	h.sent.Push(d.opKey)
	for _, m := range c.comms[d.comm] {
		to := c.hosts[m]
		if m == h.ID || to.Dead {
			continue
		}
		if to.rounds[d.opKey] == nil && !d.eager {
			c.Failf("rank %d sends operation %d, for which rank %d is not ready", h.ID, d.seq, m)
		}
		to.grams.Push(d)
	}
}

// read serves a read from the receive buffer of the peer.
func (h *host) read(q readRequest) {
	c, peer := h.c, h.c.hosts[q.to]
	own, theirs := h.rounds[q.opKey], peer.rounds[q.opKey]
	for _, chunks := range q.ranges {
		if own.state != isOpen || theirs == nil || theirs.state != isOpen && theirs.copied == nil || peer.Dead {
			if !c.hurt {
				c.Failf("rank %d reads from rank %d in operation %d, but a buffer is free", h.ID, q.to, q.seq)
			}
			return // refused: the failure of the reader is on its way
		}
		off, n := own.geo.Span(q.sub, chunks.PSN, chunks.N)
		if theirs.copied != nil {
			_, at, _ := own.geo.Locate(q.sub, chunks.PSN)
			copy(own.share.recv[off:off+n], theirs.copied[at:])
		} else {
			copy(own.share.recv[off:off+n], theirs.share.recv[off:off+n])
		}
		own.placements[q.sub].Finish(chunks.PSN, chunks.N)
	}
	h.node.ReadDone(c.Now, q.comm, q.seq, q.sub, q.ranges)
}
