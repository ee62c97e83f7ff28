package node

import (
	"fmt"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Config describes a process and what its fabric is like.
type Config struct {
	Rank, Size int       // in the world
	Timeout    step.Time // silence after which a rank is lost; 0: never, and no heartbeats
	Deadline   step.Time // for a call, from Start on, waiting for its turn included; 0: none
	Flow       mcast.Flow
	Room       uint64       // FlowCredit: datagrams that the process's receive queues hold
	Offload    uint64       // FlowCredit: datagrams that may be on their way to operations for which the kernel receives
	Taken      *place.Taken // what the receive workers share; nil: there are none
	ByKernel   *place.Taken // what the kernel has placed for the process; likewise
	Batch      uint32
	Overhead   int
	Limits     mcast.Limits
	Layout     wire.Layout
	InFlight   int   // calls that run at once on a communicator
	Eager      int64 // point-to-point calls of at most so many bytes are eager, on all ranks alike: the driver keeps data for which Early says so

	// Digest has ranks compare what multicast brought them: see Digest, the action.
	Digest bool

	// Turned, if set, is told of every change of phase, for people to see. It must not
	// call the node.
	Turned func(comm uint32, seq uint64, from, to step.Phase)
}

// ActionKind says what a driver has to do.
type ActionKind uint8

// Actions.
const (
	Send      ActionKind = iota // To, Msg
	Open                        // Comm, Seq, Req, and Geometry and Placements if it is multicast, Inbox if it is point to point: a round of Req begins. Let its buffers be written and read, then call Opened
	Multicast                   // Comm, Seq, Sub, PSN, N
	Read                        // To, Comm, Seq, Sub, Ranges: claim these chunks (mcast.Intake), read those that were won, then call ReadDone
	Reduce                      // Comm, Seq, Off, Len: send a range of the buffer up the reduction tree, chunk by chunk; then call Sent with 1
	Put                         // To, Comm, Seq, PSN, Off, Len, Input: send a range of the buffer, as the PSN-th to To; then call Sent with 1
	Release                     // Comm, Seq: the round no longer touches its buffers, nor does anyone
	Quiesce                     // Comm, Seq: let nothing touch the buffers any more, then call Quiesced. The round may not be Opened yet, and need not be any more
	Done                        // Req, Err, Spent: a call has ended
	Closed                      // Comm, Seq: nobody needs the operation any more; call Drained when none of its datagrams can come any more. One that was quiesced never closes, its communicator is broken
	Drop                        // To: a peer is dead, forget its connection
	Settled                     // Req, Comm, Agreed: an agreement has ended
	Removed                     // Comm: nothing of it is left
	Digest                      // Comm, Seq, Geometry: sum up what the round received (Geometry.Spans), then call Digested
)

// An Action is for the driver to carry out, in order. Ranks are world ranks.
type Action struct {
	Kind     ActionKind
	To       int
	Comm     uint32
	Seq      uint64
	Sub      int
	PSN, N   uint32
	Off, Len int64
	Ranges   []wire.Range
	Msg      wire.Msg
	Req      uint64
	Err      *Error
	Spent    Spent
	Geometry *mcast.Geometry
	Agreed   *Agreed

	Placements []*mcast.Placement // by subgroup
	Inbox      *p2p.Inbox
	Input      bool // of a reduction: from its input
}

// Stats counts what a Node saw.
type Stats struct {
	step.Stats
	Stale uint64 // datagrams and messages for no open operation
}

// A Node is one process. Its methods must not be called concurrently.
type Node struct {
	cfg    Config
	comms  map[uint32]*comm
	order  []*comm // in order of creation: nothing may depend on a map's order
	pool   *mcast.Pool
	kernel *mcast.Pool // of operations for which the kernel receives
	others int         // operations under way that are not multicast
	live   liveness

	removing int // communicators that are to be forgotten
	graves   [64]grave
	buried   int

	met   map[int]struct{} // ranks that we have sent something: they have a connection with us
	out   []Action
	spare []Action      // what Actions returned last
	steps []step.Action // scratch
	stats Stats
}

// New returns a node at time now, with no communicator.
func New(now step.Time, cfg Config) *Node {
	if cfg.InFlight < 1 {
		cfg.InFlight = 16
	}
	// Half of the slots stay free for operations that linger or drain.
	cfg.InFlight = int(min(uint64(cfg.InFlight), max(1, cfg.Layout.Slots()/2)))
	n := &Node{cfg: cfg, comms: map[uint32]*comm{}, met: map[int]struct{}{}, pool: mcast.NewPool(cfg.Room, cfg.Taken), kernel: mcast.NewPool(cfg.Offload, cfg.ByKernel)}
	n.live = newLiveness(now, &cfg)
	return n
}

// AddComm makes a communicator of the given world ranks; its rank i is
// members[i]. All members add it before any of them starts a call on it.
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
	c.slots = make([]*opState, n.cfg.Layout.Slots())
	c.lastSeq = make([]int64, len(c.slots))
	for i := range c.lastSeq {
		c.lastSeq[i] = -1
	}
	c.early, c.earlyOf = map[uint64][]earlyMsg{}, map[int]int{}
	n.comms[id] = c
	n.order = append(n.order, c)
	for _, w := range members {
		if n.live.dead[w] {
			n.breakComm(c, verdict{culprit: w, reason: Lost})
			break
		}
	}
	return nil
}

// Start begins a call; req comes back with Done. plan is mcast.Plan's.
func (n *Node) Start(now step.Time, comm uint32, req uint64, plan []*mcast.Geometry) error {
	c := n.comms[comm]
	if c == nil || c.removed {
		return fmt.Errorf("%w: %d", ErrComm, comm)
	}
	if plan[0].Size() != len(c.members) {
		return fmt.Errorf("%w: %d, the communicator has %d", ErrSize, plan[0].Size(), len(c.members))
	}
	n.start(now, c, &call{req: req, kind: plan[0].Kind(), plan: plan, rounds: len(plan)})
	return nil
}

// StartPlan begins a call that runs point to point; p is this rank's plan.
func (n *Node) StartPlan(now step.Time, comm uint32, req uint64, p *p2p.Plan) error {
	return n.startAs(now, comm, p.Rank, p.Size, &call{req: req, kind: p.Kind, p2p: p, rounds: 1})
}

// StartReduction begins a call that the network carries out.
func (n *Node) StartReduction(now step.Time, comm uint32, req uint64, r *p2p.Reduction) error {
	if err := r.Check(); err != nil {
		return err
	}
	return n.startAs(now, comm, r.Rank, r.Size, &call{req: req, kind: r.Kind, inc: r, rounds: 1})
}

// startAs begins a call that was prepared for one rank of so many.
func (n *Node) startAs(now step.Time, comm uint32, rank, size int, k *call) error {
	c := n.comms[comm]
	if c == nil || c.removed {
		return fmt.Errorf("%w: %d", ErrComm, comm)
	}
	if size != len(c.members) || rank != c.rank {
		return fmt.Errorf("%w: rank %d of %d, the communicator has %d and we are %d", ErrSize, rank, size, len(c.members), c.rank)
	}
	n.start(now, c, k)
	return nil
}

func (n *Node) start(now step.Time, c *comm, k *call) {
	k.seq, k.startAt = c.nextSeq, now
	c.nextSeq += uint64(k.rounds)
	c.calls = append(c.calls, k)
	if c.broken != nil {
		n.failCall(c, k)
		return
	}
	n.advance(c)
}

// Actions returns what there is to do and forgets it. The slice is valid
// until the next call of Actions.
func (n *Node) Actions() []Action {
	n.sweep()
	out := n.out
	n.out, n.spare = n.spare[:0], out
	return out
}

// Stats returns the counters of all operations so far.
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

// Pieces learns from the Inbox of an operation how far it is, after a peer's piece: the first prefix
// receives are complete, and left are not. That the peer lives, Heard is told when the piece comes,
// which may be long before.
func (n *Node) Pieces(now step.Time, from int, comm uint32, seq uint64, prefix, left int) {
	c := n.comms[comm]
	if c == nil {
		return
	}
	r, member := c.rankOf(from)
	st := c.find(seq)
	if !member || st == nil || st.pp == nil {
		return
	}
	n.begun(now, c, r, seq)
	n.do(c, st, st.pp.Received(now, prefix, left, n.steps[:0]))
}

// Result takes a piece of what the network has reduced for us. If ok, it
// belongs at its offset: added to what is there in a Reduce-Scatter, instead of it
// in an Allreduce.
func (n *Node) Result(now step.Time, comm uint32, seq uint64, off, length int64) (ok bool) {
	c := n.comms[comm]
	if c == nil {
		n.stats.Stale++
		return false
	}
	st := c.find(seq)
	if st == nil || st.inc == nil {
		n.stats.Stale++
		return false
	}
	ok, steps := st.inc.Result(now, off, length, n.steps[:0])
	n.do(c, st, steps)
	return ok
}

// Sent learns that chunks of an operation have left its send buffer.
func (n *Node) Sent(now step.Time, comm uint32, seq uint64, chunks uint32) {
	n.step(now, comm, seq, step.Event{Kind: step.EvSent, N: chunks})
}

// ReadDone learns that a read has ended, and which of its chunks are in place by it: those that the
// claim before it won.
func (n *Node) ReadDone(now step.Time, comm uint32, seq uint64, sub int, placed []wire.Range) {
	n.step(now, comm, seq, step.Event{Kind: step.EvRead, Sub: sub, Ranges: placed})
}

// Digested learns the sum that a Digest asked for.
func (n *Node) Digested(now step.Time, comm uint32, seq, sum uint64) {
	n.step(now, comm, seq, step.Event{Kind: step.EvDigest, Digest: sum})
}

// Drained learns that no datagram of a closed operation can arrive any more,
// neither from the network nor from a receive queue: its slot may be used again.
func (n *Node) Drained(now step.Time, comm uint32, seq uint64) {
	c := n.comms[comm]
	if c == nil {
		return
	}
	if st := c.find(seq); st != nil && st.op.Phase() == step.Closed {
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
		n.do(c, st, st.op.Step(now, ev, n.steps[:0]))
	}
}

// Message takes a reliable message from a world rank.
func (n *Node) Message(now step.Time, from int, m *wire.Msg) {
	if from < 0 || from >= n.cfg.Size {
		n.stats.Stale++
		return
	}
	n.live.heard(now, from)
	if n.live.dead[from] {
		return // declared lost: too late to change its mind
	}
	switch m.Kind {
	case wire.MsgHeartbeat:
		return
	case wire.MsgDead:
		n.declare(now, int(m.Rank), from)
		return
	}
	c := n.comms[m.Comm]
	if c == nil {
		n.unknown(from, m)
		return
	}
	r, member := c.rankOf(from)
	if !member {
		n.stats.Stale++
		return
	}
	switch m.Kind {
	case wire.MsgAbort:
		n.aborted(c, from, m)
	case wire.MsgAgree:
		n.agreeMsg(now, c, from, m)
	case wire.MsgProbeWait:
		n.explain(c, from, m)
	case wire.MsgWaitState:
		n.traced(now, c, from, m)
	default:
		n.deliver(now, c, r, m)
	}
}

// Timer is to be called at the time that NextTimer returned, or later.
func (n *Node) Timer(now step.Time) {
	n.beat(now)
	for _, c := range n.order {
		n.agreeTimer(now, c)
		if c.broken != nil {
			continue
		}
		for _, st := range c.running() {
			if st.op.Timer() <= now {
				n.do(c, st, st.op.Step(now, step.Event{Kind: step.EvTimer}, n.steps[:0]))
			}
		}
		n.checkDeadline(now, c)
	}
}

// NextTimer is when Timer wants to be called.
func (n *Node) NextTimer() step.Time {
	at := n.live.nextAt(n.cfg.Timeout)
	for _, c := range n.order {
		for _, a := range c.agreements {
			at = min(at, a.m.NextTimer())
		}
		if c.broken != nil {
			continue
		}
		at = min(at, c.timer(n.cfg.Deadline))
	}
	return at
}
