package node

import (
	"fmt"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// maxEarly bounds the messages of one peer that are kept for calls this rank has
// not made yet. A peer has at most Config.InFlight calls under way and sends a
// handful of barrier messages for each before it needs us.
const maxEarly = 1 << 15

// window is how far ahead of us a rank's calls are believed: each of those between it and
// us may be ahead of the next by lead and Config.InFlight calls.
const window = 1 << 16

// comm is one communicator.
type comm struct {
	id        uint32
	rank      int
	members   []int       // comm rank -> world rank
	fromWorld map[int]int // and back; nil: they are the same
	layout    wire.Layout
	est       *mcast.Estimator

	nextSeq uint64
	calls   []*call                         // not ended, oldest first
	slots   []*opState                      // by slot, until drained
	live    []*opState                      // not closed, oldest first
	lastSeq []int64                         // a slot's last user; -1: none
	recent  [8]recentCall                   // what the last ones were
	eager   []uint64                        // if it was eager, its digest; else 0
	reached []uint64                        // eager: by rank, one more than the last call that we know it has begun
	told    []uint64                        // eager: by rank, one more than the last call that it knows we have begun
	ahead   func(seq uint64, peer int) bool // p2p.Config's
	owes    func(seq uint64, peer int) bool // likewise
	early   map[uint64][]earlyMsg
	nEarly  int         // how many,
	earlyOf map[int]int // and by peer
	broken  *verdict
	removed bool // nobody here uses it any more
	scratch []*opState

	agreements []*agreement // not over, or not called yet
	nextAgree  uint64
}

// operation is what a round runs: a mcast.Collective or a p2p.Executor.
type operation interface {
	Step(now step.Time, ev step.Event, out []step.Action) []step.Action
	Timer() step.Time
	Phase() step.Phase
	Times() step.Times
	Stats() step.Stats
	Fail()
	WaitingOn() int
	Missing(name step.Namer) string
}

// call is one Start: one round or several, or a point-to-point plan.
type call struct {
	req     uint64
	kind    wire.CallKind
	rounds  int
	plan    []*mcast.Geometry
	p2p     *p2p.Plan
	inc     *p2p.Reduction
	seq     uint64 // of its first round
	round   int    // the round that runs or comes next
	running bool
	startAt step.Time
	spent   Spent
	trace   *trace
	failed  *Error // waiting for its operation to be quiet
}

// Spent is how long a call was in each phase, summed over its rounds.
type Spent struct {
	Barrier, Multicast, Fetch, Handshake step.Time
	Cutoff                               step.Time // the longest first cutoff of a round
}

func (s *Spent) add(t step.Times) {
	s.Cutoff = max(s.Cutoff, t.Cutoff)
	s.Barrier += t.Barrier - t.Start
	s.Handshake += t.Done - t.Have
	if t.Fetch == 0 {
		t.Fetch = t.Have
	}
	s.Multicast += t.Fetch - t.Barrier
	s.Fetch += t.Have - t.Fetch
}

// opState is one round in flight.
type opState struct {
	op   operation
	mc   *mcast.Collective // op, if it is one
	pp   *p2p.Executor     // likewise
	inc  *p2p.IncOp        // likewise
	seq  uint64
	call *call
	open bool // the driver has said Opened
	done bool // its buffers are the user's again

	closed bool // the driver was told

	seen step.Phase // that Config.Turned was told of
}

// recentCall remembers a call for the sake of errors.
type recentCall struct {
	seq  uint64
	info wire.Call
}

// calledAt says what we called, if it was not long ago.
func (c *comm) calledAt(seq uint64) wire.Call {
	if r := &c.recent[seq%uint64(len(c.recent))]; r.seq == seq {
		return r.info
	}
	return wire.Call{}
}

type earlyMsg struct {
	from int
	msg  wire.Msg
}

type verdict struct {
	culprit int
	reason  Reason
	seq     uint64
	pair    *wire.CallPair // Mismatch
}

// index checks the members and makes fromWorld. A communicator of everybody in
// order needs none, which matters when ten thousand nodes are simulated.
func (c *comm) index(size int) error {
	same := true
	for i, w := range c.members {
		if w < 0 || w >= size {
			return fmt.Errorf("rank %d is not in the world of %d", w, size)
		}
		same = same && i == w
	}
	if same {
		return nil
	}
	c.fromWorld = make(map[int]int, len(c.members))
	for i, w := range c.members {
		if _, twice := c.fromWorld[w]; twice {
			return fmt.Errorf("rank %d is there twice", w)
		}
		c.fromWorld[w] = i
	}
	return nil
}

// rankOf is the rank of a process in this communicator.
func (c *comm) rankOf(world int) (rank int, member bool) {
	if c.fromWorld == nil {
		return world, world >= 0 && world < len(c.members)
	}
	rank, member = c.fromWorld[world]
	return rank, member
}

// name is what people call a rank of the communicator: by its number there, and in the world where
// that differs.
func (c *comm) name(rank int) string {
	if w := c.members[rank]; w != rank {
		return fmt.Sprintf("rank %d (world rank %d)", rank, w)
	}
	return fmt.Sprintf("rank %d", rank)
}

// find returns the operation seq if it is open here.
func (c *comm) find(seq uint64) *opState {
	if st := c.slots[c.layout.Slot(seq)]; st != nil && st.seq == seq {
		return st
	}
	return nil
}

// running returns the open operations, safe against changes meanwhile.
func (c *comm) running() []*opState {
	c.scratch = append(c.scratch[:0], c.live...)
	return c.scratch
}

// advance starts what may start: of the oldest calls the next round each, when
// its slot is free. What runs stays within one turn of the slots, counted from
// the oldest: a slot's users then come in order, and no rank can hold a slot for
// a later operation that another rank holds for an earlier one.
func (n *Node) advance(c *comm) {
	for i := 0; i < len(c.calls) && i < n.cfg.InFlight; i++ {
		k := c.calls[i]
		if k.next()-c.calls[0].next() >= c.layout.Slots() {
			return
		}
		if !k.running && c.slots[c.layout.Slot(k.next())] == nil {
			n.begin(c, k)
		}
	}
}

// next is the round of the call that runs or comes next.
func (k *call) next() uint64 { return k.seq + uint64(k.round) }

func (n *Node) begin(c *comm, k *call) {
	seq := k.next()
	st := &opState{seq: seq, call: k}
	open := Action{Kind: Open, Comm: c.id, Seq: seq, Req: k.req}
	switch {
	case k.p2p != nil:
		cfg := p2p.Config{Plan: k.p2p, Comm: c.id, Seq: seq}
		n.eager(c, k, &cfg)
		st.pp = p2p.NewExecutor(cfg)
		st.op = st.pp
		open.Inbox = p2p.NewInbox(k.p2p)
	case k.inc != nil:
		st.inc = p2p.NewIncOp(k.inc).Numbered(c.id, seq)
		st.op = st.inc
	default:
		open.Geometry = k.plan[k.round]
		st.mc = mcast.New(mcast.Config{
			Geometry: open.Geometry, Rank: c.rank, Comm: c.id, Seq: seq, Est: c.est,
			Flow: n.cfg.Flow, Pool: n.pool, Offload: n.kernel, Batch: n.cfg.Batch, Overhead: n.cfg.Overhead, Others: &n.others, Digest: n.cfg.Digest,
		})
		st.op = st.mc
		open.Placements = st.mc.Placements()
	}
	if st.mc == nil {
		n.others++
	}
	slot := c.layout.Slot(seq)
	c.slots[slot] = st
	c.lastSeq[slot] = int64(seq)
	c.recent[seq%uint64(len(c.recent))] = recentCall{seq, k.info()}
	n.noteEager(c, k, slot)
	c.live = append(c.live, st)
	k.running = true
	n.out = append(n.out, open)
}

// Opened learns that the buffers of a round can be written and read: the answer to Open. Offloaded
// says that the kernel receives for all of its subgroups, not the process.
func (n *Node) Opened(now step.Time, comm uint32, seq uint64, offloaded bool) {
	c := n.comms[comm]
	if c == nil {
		return
	}
	st := c.find(seq)
	if st == nil || st.open || c.broken != nil {
		return
	}
	st.open = true
	n.do(c, st, st.op.Step(now, step.Event{Kind: step.EvStart, Offloaded: offloaded}, n.steps[:0]))
	early := c.early[seq]
	delete(c.early, seq)
	for i := range early {
		c.nEarly--
		c.earlyOf[early[i].from]--
		n.deliver(now, c, early[i].from, &early[i].msg)
	}
}

// deliver hands a message to its operation, or keeps it for one to come.
func (n *Node) deliver(now step.Time, c *comm, from int, m *wire.Msg) {
	if c.broken != nil {
		// It may not have heard, or not known the communicator when it did.
		n.send(c.members[from], c.broken.message(c.id))
		return
	}
	n.begun(now, c, from, m.Seq)
	st := c.find(m.Seq)
	if st != nil && st.open {
		if st.greetedOtherwise(m) {
			n.mismatch(c, from, m.Seq, m.Call, st.call.info())
			return
		}
		n.do(c, st, st.op.Step(now, step.Event{Kind: step.EvMsg, From: from, Msg: m}, n.steps[:0]))
		return
	}
	// Calls that a peer can have under way are near those that we have made.
	greets := (m.Kind == wire.MsgBarrier || m.Kind == wire.MsgReady) && m.Seq < c.nextSeq+window
	if st == nil && greets && c.eagerlyDone(m) {
		return
	}
	if st == nil && greets && int64(m.Seq) <= c.lastSeq[c.layout.Slot(m.Seq)] {
		// Nobody can have finished a call that another one only now makes: they
		// made different ones.
		n.mismatch(c, from, m.Seq, m.Call, c.calledAt(m.Seq))
		return
	}
	if !greets {
		n.stats.Stale++
		return
	}
	if c.earlyOf[from] == maxEarly {
		n.breakBy(c, verdict{culprit: c.members[from], reason: Protocol, seq: m.Seq}, -1)
		return
	}
	c.early[m.Seq] = append(c.early[m.Seq], earlyMsg{from, *m})
	c.nEarly++
	c.earlyOf[from]++
}

// greetedOtherwise reports whether a peer began the operation in a way that this
// one does not: one of them multicasts, the other does not. Neither would ever
// answer the other.
func (st *opState) greetedOtherwise(m *wire.Msg) bool {
	if st.op.Phase() == step.Failed {
		return false
	}
	if st.mc != nil {
		return m.Kind == wire.MsgReady
	}
	return m.Kind == wire.MsgBarrier
}

// do turns an operation's actions into the node's.
func (n *Node) do(c *comm, st *opState, acts []step.Action) {
	n.steps = nil // acts may use it, and do may come back here
	n.turned(c, st)
	for i := range acts {
		a := &acts[i]
		switch a.Kind {
		case step.ActSend:
			c.tells(a.To, st.seq)
			n.send(c.members[a.To], &a.Msg)
		case step.ActMulticast:
			n.out = append(n.out, Action{Kind: Multicast, Comm: c.id, Seq: st.seq, Sub: a.Sub, PSN: a.PSN, N: a.N, Geometry: st.mc.Geometry()})
		case step.ActRead:
			n.out = append(n.out, Action{Kind: Read, To: c.members[a.To], Comm: c.id, Seq: st.seq, Sub: a.Sub, Ranges: a.Ranges})
		case step.ActReduce:
			n.out = append(n.out, Action{Kind: Reduce, Comm: c.id, Seq: st.seq, Off: a.Off, Len: a.Len})
		case step.ActPut:
			n.out = append(n.out, Action{Kind: Put, To: c.members[a.To], Comm: c.id, Seq: st.seq, PSN: a.PSN, Off: a.Off, Len: a.Len, Input: a.Input})
		case step.ActComplete:
			n.completed(c, st)
		case step.ActClosed:
			n.closed(c, st)
		case step.ActDigest:
			n.out = append(n.out, Action{Kind: Digest, Comm: c.id, Seq: st.seq, Geometry: st.mc.Geometry()})
		case step.ActCorrupt:
			n.corrupt(c, a.To, st.seq)
			return
		case step.ActMismatch:
			n.mismatch(c, a.To, st.seq, a.Msg.Call, st.call.info())
			return
		}
	}
	n.steps = acts[:0]
}

func (n *Node) send(to int, m *wire.Msg) {
	n.met[to] = struct{}{}
	n.out = append(n.out, Action{Kind: Send, To: to, Msg: *m})
}

func (n *Node) completed(c *comm, st *opState) {
	st.done = true
	if st.mc == nil {
		n.others--
	}
	k := st.call
	k.running, k.trace = false, nil
	k.spent.add(st.op.Times())
	n.out = append(n.out, Action{Kind: Release, Comm: c.id, Seq: st.seq})
	if k.round++; k.round < k.rounds {
		n.advance(c)
		return
	}
	n.end(c, k, nil)
	n.advance(c)
}

// end takes a call off the list and reports it.
func (n *Node) end(c *comm, k *call, err *Error) {
	for i := range c.calls {
		if c.calls[i] == k {
			c.calls = append(c.calls[:i], c.calls[i+1:]...)
			break
		}
	}
	n.out = append(n.out, Action{Kind: Done, Req: k.req, Comm: c.id, Seq: k.seq, Err: err, Spent: k.spent})
}

func (n *Node) closed(c *comm, st *opState) {
	if st.closed {
		return // the communicator broke meanwhile, and closed it
	}
	st.closed = true
	n.stats.add(st.op.Stats())
	for i := range c.live {
		if c.live[i] == st {
			c.live = append(c.live[:i], c.live[i+1:]...)
			break
		}
	}
	n.out = append(n.out, Action{Kind: Closed, Comm: c.id, Seq: st.seq})
}

// timer is when this communicator wants attention.
func (c *comm) timer(deadline step.Time) step.Time {
	at := step.Never
	for _, st := range c.live {
		at = min(at, st.op.Timer())
	}
	if deadline > 0 && len(c.calls) > 0 {
		at = min(at, c.calls[0].deadlineAt(deadline))
	}
	return at
}
