package node

import (
	"fmt"

	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Config describes a process and its fabric.
type Config struct {
	Rank, Size int       // position in the world
	Timeout    step.Time // silence after which a rank is lost; 0 disables liveness checks and heartbeats
	Deadline   step.Time // time limit of a collective from Start on, including its time in the queue; 0 for none
	Flow       mcast.Flow
	Groups     Groups       // FlowCredit: where the datagrams of communicators arrive
	Room       uint64       // FlowCredit: datagrams that the receive queues of the process hold
	MinRoom    uint64       // FlowCredit: smallest Room of all ranks; 0 if all have the same
	Offload    uint64       // FlowCredit: datagrams that may be in transit to operations that the kernel receives
	Taken      *place.Taken // counter shared by the receive workers; nil if there are none
	ByKernel   *place.Taken // counter of datagrams that the kernel placed; nil if it places none
	Batch      uint32
	Places     uint32 // places of one Contribute; 0 means Batch
	Super      uint32
	Overhead   int
	Limits     mcast.Limits
	Patience   inc.Limits // of reductions by aggregators; fields that are 0 get a default
	Retry      step.Time  // time for which a communicator does not use aggregators that failed; 0 for inc.RetryAfter
	Layout     wire.Layout
	InFlight   int // limit of concurrent calls per communicator
	// Eager is the maximum size in bytes of eager point-to-point calls; the same on all ranks. The
	// driver keeps the data for which Early returns true.
	Eager int64

	// EagerChunks is the number of chunks up to which multicast calls are eager (mcast.EagerChunks); the same
	// on all ranks, and 0 for none. The driver keeps early datagrams (mcast.Intake.Keep).
	EagerChunks uint32

	// Digest makes ranks compare the data that multicast brought them: see the action Digest.
	Digest bool

	// Turned, if set, is called on every change of phase, for observers. It must not call the node.
	Turned func(comm uint32, seq uint64, from, to step.Phase)
}

// ActionKind is the kind of an Action.
type ActionKind uint8

// Actions, with the fields that each kind uses.
const (
	// Send sends Msg to To.
	Send ActionKind = iota
	// Open starts a round of Req: Comm, Seq, Req; Geometry, Placements and Eager for multicast, Inbox for
	// point to point, Len for a message; Reduction, Number, Layout and Record for a reduction by aggregators.
	// The driver makes its buffers writable and readable, then calls Opened. For an eager round, it keeps a
	// copy of this rank's block until Closed: peers read from it.
	Open
	// Multicast sends chunks: Comm, Seq, Stream, PSN, N. An eager round sends from the copy of its block.
	Multicast
	// Read reads chunks from To: Comm, Seq, Stream, Ranges. The driver claims the chunks
	// (mcast.Intake), reads those that it won, then calls ReadDone.
	Read
	// Contribute sends this rank's contributions to its aggregator: Comm, Seq, Number, PSN, N, Try, Offer. It
	// sends places PSN to PSN+N-1 of the Layout, without those of this rank's own block. The driver then
	// calls Sent with N.
	Contribute
	// Fetch makes sums without aggregators: Comm, Seq, PSN, N. Of this rank's own chunks PSN to PSN+N-1, the
	// driver claims the free ones in the Record. For these it reads the contributions of all other ranks,
	// adds them as the aggregators would have done (inc.Tree.Combine), adds its own, and finishes them in
	// the Record. It then calls Fetched.
	Fetch
	// Put sends a range of the buffer to To as its PSN-th: Comm, Seq, PSN, Off, Len, Input, Parts. The
	// driver then calls Sent with 1.
	Put
	// Release reports that neither the round nor any other party uses its buffers: Comm, Seq.
	Release
	// Quiesce stops all access to the buffers of a round: Comm, Seq. The driver then calls Quiesced.
	// It need not call Opened any more if it has not done so.
	Quiesce
	// Done reports the end of a call: Req, Err, Spent. For a Recv, To is the sender's rank in the
	// communicator, and Len the size of the message. For a reduction, Fallback is the reason why the
	// aggregators did not make all sums, or empty.
	Done
	// Closed reports that no rank needs the operation any more: Comm, Seq. The driver calls Drained
	// when none of its datagrams can arrive. A quiesced operation never closes: its communicator is
	// broken.
	Closed
	// Drop reports that peer To is dead. The driver closes its connection.
	Drop
	// Settled reports the end of an agreement: Req, Comm, Agreed.
	Settled
	// Removed reports that the node has forgotten Comm.
	Removed
	// Digest asks for the digest of the data that the round received: Comm, Seq, Geometry
	// (Geometry.Spans). The driver then calls Digested.
	Digest
)

// An Action is a task for the driver. The driver executes actions in order. Ranks are world ranks.
type Action struct {
	Kind     ActionKind
	To       int
	Comm     uint32
	Seq      uint64
	Stream   int
	PSN, N   uint32
	Off, Len int64
	Ranges   []wire.Range
	Msg      wire.Msg
	Req      uint64
	Err      *Error
	Spent    Spent
	Geometry *mcast.Geometry
	Agreed   *Agreed

	Placements []*mcast.Placement // by stream
	Inbox      *p2p.Inbox
	Eager      bool        // multicast: the round has no barrier and no handshake
	Input      bool        // reduction: take the range from the input
	Parts      []wire.Span // if not nil, the piece consists of these ranges

	Reduction *inc.Reduction
	Layout    *inc.Layout
	Record    *place.Map // chunks of this rank's block
	Number    uint32     // of the reduction in its communicator
	Try       uint8      // of the contributions
	Offer     bool       // whether to offer the contributions only
	Fallback  string
}

// Stats holds the counters of a Node.
type Stats struct {
	step.Stats
	Stale uint64 // datagrams and messages that belong to no open operation
}

// A Node is one process. Its methods must not be called concurrently.
type Node struct {
	cfg         Config
	comms       map[uint32]*comm
	order       []*comm // in order of creation: behaviour must not depend on map order
	pool        *mcast.Pool
	offloadPool *mcast.Pool  // room of operations that the kernel receives
	others      mcast.Others // running operations that are not multicast
	aggregators inc.Aggregation
	live        liveness

	removing    int // number of communicators to forget
	lastBroken  [64]brokenComm
	brokenCount int

	connected map[int]struct{} // ranks that this rank has sent to, and is therefore connected to
	out       []Action
	spare     []Action      // slice returned by the last call of Actions
	steps     []step.Action // scratch
	stats     Stats
}

// New returns a node without communicators.
func New(now step.Time, cfg Config) *Node {
	if cfg.InFlight < 1 {
		cfg.InFlight = 16
	}
	// Half of the slots stay free for operations that linger or drain.
	cfg.InFlight = int(min(uint64(cfg.InFlight), max(1, cfg.Layout.Slots()/2)))
	n := &Node{
		cfg: cfg, comms: map[uint32]*comm{}, connected: map[int]struct{}{},
		pool:        mcast.NewPool(cfg.Room-min(cfg.Room, mcast.EagerRoom(cfg.EagerChunks)), cfg.Taken),
		offloadPool: mcast.NewPool(cfg.Offload, cfg.ByKernel),
	}
	n.live = newLiveness(now, &cfg)
	return n
}

// AddComm adds a communicator of the given world ranks; its rank i is members[i]. All members add it
// before any of them starts a call on it. An id is never used again in the job: late messages, and the slots of
// aggregators, would mix up two communicators.
func (n *Node) AddComm(id uint32, members []int) error {
	c := &comm{id: id, members: members, layout: n.cfg.Layout}
	if err := c.index(n.cfg.Size); err != nil {
		return fmt.Errorf("communicator %d: %w", id, err)
	}
	var member bool
	if c.rank, member = c.rankOf(n.cfg.Rank); !member {
		return fmt.Errorf("communicator %d: rank %d is not a member", id, n.cfg.Rank)
	}
	if n.comms[id] != nil {
		return fmt.Errorf("communicator %d exists", id)
	}
	c.est = mcast.NewEstimator(n.cfg.Limits)
	c.shared = n.cfg.Groups == GroupsShared && len(members) < n.cfg.Size
	c.slots = make([]*round, n.cfg.Layout.Slots())
	c.lastSeq = make([]int64, len(c.slots))
	for i := range c.lastSeq {
		c.lastSeq[i] = -1
	}
	c.early = earlyMsgs{bySeq: map[uint64][]earlyMsg{}, byPeer: map[int]int{}}
	n.comms[id] = c
	n.order = append(n.order, c)
	if w, lost := n.firstLost(c); lost {
		n.breakComm(c, verdict{culprit: w, reason: Lost})
	}
	return nil
}

// firstLost returns the lost member with the lowest rank in the communicator, as a world rank.
func (n *Node) firstLost(c *comm) (world int, lost bool) {
	first := len(c.members)
	for _, w := range n.live.deaths {
		if r, member := c.rankOf(w); member && r < first {
			first, world, lost = r, w, true
		}
	}
	return world, lost
}

// Start starts a multicast call with the result of mcast.Plan. Done returns req.
func (n *Node) Start(now step.Time, comm uint32, req uint64, plan []*mcast.Geometry) error {
	c := n.comms[comm]
	if c == nil || c.removed {
		return fmt.Errorf("%w: %d", ErrComm, comm)
	}
	if plan[0].Size() != len(c.members) {
		return fmt.Errorf("%w: %d, but the communicator has %d", ErrSize, plan[0].Size(), len(c.members))
	}
	k := &call{req: req, kind: plan[0].Kind(), plan: plan, rounds: len(plan), eager: n.isEagerMulticast(c, plan)}
	n.start(now, c, k)
	return nil
}

// StartPlan starts a point-to-point call with the plan of this rank. Done returns req.
func (n *Node) StartPlan(now step.Time, comm uint32, req uint64, p *p2p.Plan) error {
	return n.startAs(now, comm, p.Rank, p.Size, &call{req: req, kind: p.Kind, p2p: p, rounds: 1})
}

// startAs starts a call that was prepared for one rank of a communicator of this size.
func (n *Node) startAs(now step.Time, comm uint32, rank, size int, k *call) error {
	c := n.comms[comm]
	if c == nil || c.removed {
		return fmt.Errorf("%w: %d", ErrComm, comm)
	}
	if size != len(c.members) || rank != c.rank {
		return fmt.Errorf("%w: rank %d of %d, but the communicator has %d ranks and this is rank %d",
			ErrSize, rank, size, len(c.members), c.rank)
	}
	n.start(now, c, k)
	return nil
}

func (n *Node) start(now step.Time, c *comm, k *call) {
	k.seq, k.startAt, k.deadline = c.nextSeq, now, step.Never
	if n.cfg.Deadline > 0 {
		k.deadline = now + n.cfg.Deadline
	}
	c.nextSeq += uint64(k.rounds)
	c.calls.add(k)
	if c.broken != nil {
		n.failCall(c, k)
		return
	}
	if k.inc != nil {
		k.reduction = c.reductions
		c.reductions++
	}
	if k.eager {
		k.number = c.eagerWindow().Begin(k.plan[0], k.seq)
	}
	n.checkAsked(c)
	n.freeSlots(now, c)
	if c.broken == nil {
		n.advance(c)
	}
}

// Actions returns the pending actions and clears them. The slice is valid until the next call of
// Actions.
func (n *Node) Actions() []Action {
	n.sweep()
	out := n.out
	n.out, n.spare = n.spare[:0], out
	return out
}

// Stats returns the sum of the counters of all operations.
func (n *Node) Stats() Stats {
	s := n.stats
	for _, c := range n.order {
		for _, st := range c.live {
			s.add(st.op.Stats())
		}
	}
	return s
}

func (s *Stats) add(o step.Stats) {
	s.Repaired += o.Repaired
	s.Late += o.Late
	s.Duplicates += o.Duplicates
	s.Foreign += o.Foreign
}

// Pieces reports the state of an operation's Inbox after a piece from a peer: the first prefix
// receives are complete, and left are not. The driver reports the sign of life separately (Heard),
// when the piece arrives, which may be much earlier.
func (n *Node) Pieces(now step.Time, from int, comm uint32, seq uint64, prefix, left int) {
	c := n.comms[comm]
	if c == nil {
		return
	}
	r, member := c.rankOf(from)
	st := c.find(seq)
	switch {
	case !member || st == nil:
	case st.mail != nil:
		n.execute(c, st, st.mail.Received(now, prefix, left, n.steps[:0]))
	case st.pp != nil:
		n.recordReached(now, c, r, seq)
		before, _ := st.pending()
		steps := st.pp.Received(now, prefix, left, n.steps[:0])
		if bytes, next := st.pending(); bytes != before {
			n.others.Receive(now, before-bytes, bytes, next)
		}
		n.execute(c, st, steps)
	}
}

// Sent reports that chunks of an operation have left its send buffer. It answers Multicast, Put and Contribute.
func (n *Node) Sent(now step.Time, comm uint32, seq uint64, chunks uint32) {
	n.step(now, comm, seq, step.Event{Kind: step.EvSent, N: chunks})
}

// ReadDone reports the end of a read, and the chunks that it has placed: those that its claim won.
func (n *Node) ReadDone(now step.Time, comm uint32, seq uint64, sub int, placed []wire.Range) {
	n.step(now, comm, seq, step.Event{Kind: step.EvRead, Stream: sub, Ranges: placed})
}

// Digested reports the digest that a Digest action asked for.
func (n *Node) Digested(now step.Time, comm uint32, seq, sum uint64) {
	n.step(now, comm, seq, step.Event{Kind: step.EvDigest, Digest: sum})
}

// Drained reports that no datagram of a closed operation can arrive any more, neither from the
// network nor from a receive queue. Its slot becomes free.
func (n *Node) Drained(now step.Time, comm uint32, seq uint64) {
	c := n.comms[comm]
	if c == nil {
		return
	}
	if st := c.find(seq); st != nil && st.op.Phase() == step.Closed {
		if st.mail != nil {
			delete(c.mail.rounds, seq)
			return
		}
		c.slots[c.layout.Slot(seq)] = nil
		if c.broken == nil {
			n.advance(c)
		}
	}
}

func (n *Node) step(now step.Time, comm uint32, seq uint64, ev step.Event) {
	c := n.comms[comm]
	if c == nil {
		return
	}
	if st := c.find(seq); st != nil {
		n.execute(c, st, st.op.Step(now, ev, n.steps[:0]))
		n.moveWindow(now, c)
	}
}

// Message handles a reliable message from a world rank.
func (n *Node) Message(now step.Time, from int, m *wire.Msg) {
	if from < 0 || from >= n.cfg.Size {
		n.stats.Stale++
		return
	}
	n.live.recordSign(now, from)
	if n.live.dead[from] {
		return // a declared loss is final
	}
	switch m.Kind {
	case wire.MsgHeartbeat:
		return
	case wire.MsgDead:
		n.declareLost(now, int(m.Rank), from)
		return
	}
	c := n.comms[m.Comm]
	if c == nil {
		n.handleUnknownComm(from, m)
		return
	}
	r, member := c.rankOf(from)
	if !member {
		n.stats.Stale++
		return
	}
	switch m.Kind {
	case wire.MsgAbort:
		n.handleAbort(c, from, m)
	case wire.MsgAgree:
		n.handleAgree(now, c, from, m)
	case wire.MsgProbeWait:
		n.answerProbe(c, from, m)
	case wire.MsgWaitState:
		n.handleWaitState(now, c, from, m)
	case wire.MsgFinishedUp, wire.MsgFinished, wire.MsgFinishedAsk:
		n.handleWindow(now, c, r, m)
	case wire.MsgOffer, wire.MsgAccept, wire.MsgDiscard, wire.MsgWithdraw, wire.MsgWithdrawn, wire.MsgCredit:
		n.handleMail(now, c, r, m)
	default:
		n.deliver(now, c, r, m)
	}
}

// Timer runs expired timers. The driver calls it at the time that NextTimer returned, or later.
func (n *Node) Timer(now step.Time) {
	n.checkLiveness(now)
	for _, c := range n.order {
		c.checkRetry(now)
		n.agreeTimer(now, c)
		if c.broken != nil {
			continue
		}
		for _, st := range c.running() {
			if st.op.Timer() <= now {
				n.execute(c, st, st.op.Step(now, step.Event{Kind: step.EvTimer}, n.steps[:0]))
			}
		}
		n.moveWindow(now, c)
		n.checkDeadline(now, c)
		n.probeSenders(now, c)
	}
}

// NextTimer returns the time at which the driver should call Timer.
func (n *Node) NextTimer() step.Time {
	at := n.live.nextAt(n.cfg.Timeout)
	for _, c := range n.order {
		for _, a := range c.agreements {
			at = min(at, a.m.NextTimer())
		}
		if c.broken != nil {
			continue
		}
		at = min(at, c.timer(), c.mailTimer(n.cfg.Timeout), c.retryTimer())
	}
	return at
}
