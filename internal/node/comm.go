package node

import (
	"fmt"
	"slices"

	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// seqWindow limits how far ahead of this rank's calls a peer's calls may be. Each rank on the path
// between two ranks may be ahead of the next one by eagerLead and Config.InFlight calls.
const seqWindow = 1 << 16

// comm is one communicator.
type comm struct {
	id        uint32
	rank      int
	members   []int       // comm rank -> world rank
	fromWorld map[int]int // world rank -> comm rank; nil if they are equal
	layout    wire.Layout
	est       *mcast.Estimator
	shared    bool // whether its datagrams reach ranks that are not members

	nextSeq uint64
	calls   calls
	trace   *trace        // search for the rank that an overdue call waits for; nil: none
	slots   []*round      // rounds by slot, until drained
	live    []*round      // rounds that are not closed, oldest first
	lastSeq []int64       // last user of each slot, or -1
	recent  [8]recentCall // descriptions of the last calls
	eager   eagerState
	window  *mcast.Window // of eager multicasts; nil before the first
	passed  uint64        // window.All() that live rounds know
	early   earlyMsgs
	mail    mailbox
	broken  *verdict
	removed bool // whether the user has closed it
	scratch []*round

	reductions uint32  // number of the next reduction by aggregators
	reduced    uint32  // number of those that have completed on this rank
	pace       float64 // time per byte of the last reduction, in 1/256 ns; 0 before the first
	answers    inc.Answers
	retryAt    step.Time // if not 0, aggregators did not answer, and no reduction uses them before this time
	failures   int       // number of reductions in a row for which aggregators failed
	few        fewSums   // of the last reductions with small blocks

	agreements []*agreement // agreements that have not ended, or that the user has not called yet
	nextAgree  uint64
}

// operation runs one round: a mcast.Collective, a mcast.Eager, a p2p.Executor or an inc.Op.
type operation interface {
	Step(now step.Time, ev step.Event, out []step.Action) []step.Action
	Timer() step.Time
	Phase() step.Phase
	Times() step.Times
	Stats() step.Stats
	Fail()
	WaitingOn() int
	Awaits(rank int) bool // whether it cannot end without something that a rank has not sent
	Missing(name step.Namer) string
}

// call is one Start: one round or several, or a point-to-point plan.
type call struct {
	req     uint64
	kind    wire.CallKind
	rounds  int
	plan    []*mcast.Geometry // rounds of multicast
	eager   bool              // multicast without barrier
	number  uint64            // among the eager multicasts of the communicator
	p2p     *p2p.Plan
	inc     *inc.Reduction // first round of a reduction by aggregators; plan follows
	mail    *mail          // Send and Recv
	seq     uint64         // number of its first round
	round   int            // index of the current or next round
	running bool
	startAt step.Time
	spent   Spent
	failed  *Error // error to report once the operation is quiescent

	deadline step.Time // step.Never if it has none

	reduction uint32 // among the reductions of the communicator
	fallback  string // reason why aggregators did not make all sums
}

// Spent holds the time that a call spent in each phase, summed over its rounds.
type Spent struct {
	Barrier, Multicast, Fetch, Handshake step.Time
	Cutoff                               step.Time // longest first cutoff of a round
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

// round is one round in flight.
type round struct {
	op     operation
	mc     *mcast.Collective // op if it is multicast and not eager, otherwise nil
	eg     *mcast.Eager      // op if it is an eager multicast, otherwise nil
	pp     *p2p.Executor     // op if it is point to point, otherwise nil
	inc    *inc.Op           // op if aggregators reduce, otherwise nil
	mail   *p2p.Mail         // op of a Send or a Recv, otherwise nil
	seq    uint64
	call   *call
	opened bool // whether the driver has called Opened
	done   bool // whether its buffers belong to the user again

	closed bool // whether the driver has been told to close it

	reported step.Phase // last phase reported to Config.Turned

	reducing
}

func (st *round) multicasts() bool { return st.mc != nil || st.eg != nil }

// pending returns how many bytes of other ranks a point-to-point round waits for.
func (st *round) pending() (bytes, next int64) {
	if st.pp == nil {
		return 0, 0
	}
	return st.pp.Pending()
}

// recentCall describes a call for error messages.
type recentCall struct {
	seq  uint64
	info wire.Call
}

// calledAt describes this rank's call with number seq, if it is queued, in flight or recent.
func (c *comm) calledAt(seq uint64) wire.Call {
	for _, k := range c.calls.all {
		if k.seq <= seq && seq < k.seq+uint64(k.rounds) {
			return k.info()
		}
	}
	if r := &c.recent[seq%uint64(len(c.recent))]; r.seq == seq {
		return r.info
	}
	return wire.Call{}
}

type verdict struct {
	culprit int
	reason  Reason
	seq     uint64
	pair    *wire.CallPair // Mismatch
}

// index checks the members and builds fromWorld. A communicator of all ranks in order needs no map,
// which matters when ten thousand nodes are simulated.
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
			return fmt.Errorf("rank %d appears twice", w)
		}
		c.fromWorld[w] = i
	}
	return nil
}

// rankOf returns the rank of a process in this communicator.
func (c *comm) rankOf(world int) (rank int, member bool) {
	if c.fromWorld == nil {
		return world, world >= 0 && world < len(c.members)
	}
	rank, member = c.fromWorld[world]
	return rank, member
}

// name returns the name of a rank in error messages: its number in the communicator, and its world
// rank where that differs.
func (c *comm) name(rank int) string {
	if w := c.members[rank]; w != rank {
		return fmt.Sprintf("rank %d (world rank %d)", rank, w)
	}
	return fmt.Sprintf("rank %d", rank)
}

// find returns the round with number seq if it holds its slot.
func (c *comm) find(seq uint64) *round {
	if _, isMail := wire.MailSender(seq); isMail {
		return c.mail.rounds[seq]
	}
	if st := c.slots[c.layout.Slot(seq)]; st != nil && st.seq == seq {
		return st
	}
	return nil
}

// running returns a copy of the live rounds, so that the caller may change the list.
func (c *comm) running() []*round {
	c.scratch = append(c.scratch[:0], c.live...)
	return c.scratch
}

// advance starts the next round of each of the oldest calls whose slot is free. Running rounds stay
// within one cycle of the slots, counted from the oldest. The users of a slot therefore follow in
// order. No rank can hold a slot for a later operation than another rank.
func (n *Node) advance(c *comm) {
	for i := 0; i < len(c.calls.all) && i < n.cfg.InFlight; i++ {
		k := c.calls.all[i]
		if k.next()-c.calls.oldest().next() >= c.layout.Slots() {
			return
		}
		if !k.running && c.slots[c.layout.Slot(k.next())] == nil && !c.waitsForTurn(k) {
			n.startRound(c, k)
		}
	}
}

// next returns the number of the call's current or next round.
func (k *call) next() uint64 { return k.seq + uint64(k.round) }

func (n *Node) startRound(c *comm, k *call) {
	seq := k.next()
	st := &round{seq: seq, call: k}
	open := Action{Kind: Open, Comm: c.id, Seq: seq, Req: k.req}
	switch {
	case k.p2p != nil:
		cfg := p2p.Config{Plan: k.p2p, Comm: c.id, Seq: seq}
		n.configureEager(c, k, &cfg)
		st.pp = p2p.NewExecutor(cfg)
		st.op = st.pp
		open.Inbox = p2p.NewInbox(k.p2p)
	case k.reduces():
		n.startReducing(c, st, &open)
	case k.eager:
		open.Geometry, open.Eager = k.plan[0], true
		st.eg = mcast.NewEager(mcast.EagerConfig{
			Geometry: open.Geometry, Rank: c.rank, Comm: c.id, Seq: seq, Number: k.number, Window: c.window,
			Est: c.est, Pool: n.pool, Overhead: n.cfg.Overhead,
		})
		st.op = st.eg
		open.Placements = []*mcast.Placement{st.eg.Placement()}
	default:
		open.Geometry = k.geometry()
		charge, offload := n.room(c)
		st.mc = mcast.New(mcast.Config{
			Geometry: open.Geometry, Rank: c.rank, Comm: c.id, Seq: seq, Est: c.est,
			Flow: n.cfg.Flow, Pool: n.pool, Offload: offload, Charge: charge, Batch: n.cfg.Batch, Super: n.cfg.Super,
			Overhead: n.cfg.Overhead, Others: &n.others, Digest: n.cfg.Digest,
		})
		st.op = st.mc
		open.Placements = st.mc.Placements()
	}
	if !st.multicasts() {
		n.others.Start(st.pending())
	}
	slot := c.layout.Slot(seq)
	c.slots[slot] = st
	c.lastSeq[slot] = int64(seq)
	c.recent[seq%uint64(len(c.recent))] = recentCall{seq, k.info()}
	n.rememberEager(c, k, slot)
	c.live = append(c.live, st)
	k.running = true
	n.out = append(n.out, open)
}

// Opened answers Open: the buffers of a round can be written and read. Offloaded means that the kernel,
// not the process, receives for all its streams.
func (n *Node) Opened(now step.Time, comm uint32, seq uint64, offloaded bool) {
	c := n.comms[comm]
	if c == nil {
		return
	}
	st := c.find(seq)
	if st == nil || st.opened || c.broken != nil {
		return
	}
	st.opened = true
	n.execute(c, st, st.op.Step(now, step.Event{Kind: step.EvStart, Offloaded: offloaded}, n.steps[:0]))
	early := c.early.take(seq)
	for i := range early {
		n.deliver(now, c, early[i].from, &early[i].msg)
	}
	n.moveWindow(now, c)
}

// deliver passes a message to its round, or keeps it for a future round.
func (n *Node) deliver(now step.Time, c *comm, from int, m *wire.Msg) {
	if c.broken != nil {
		// The peer may not have received the verdict, or not known the communicator at the time.
		n.send(c.members[from], c.broken.message(c.id))
		return
	}
	n.recordReached(now, c, from, m.Seq)
	st := c.find(m.Seq)
	if st != nil && st.opened {
		if st.greetingMismatch(m) {
			n.breakMismatched(c, from, m.Seq, m.Call, st.call.infoFor(from))
			return
		}
		n.execute(c, st, st.op.Step(now, step.Event{Kind: step.EvMsg, From: from, Msg: m}, n.steps[:0]))
		return
	}
	// A peer's calls in flight have numbers near those of this rank's calls.
	greets := m.Kind == wire.MsgBarrier || m.Kind == wire.MsgReady || m.Kind == wire.MsgEagerFetch
	greets = greets && m.Seq < c.nextSeq+seqWindow
	if st == nil && greets && c.completedEagerly(m) {
		return
	}
	if st == nil && greets && int64(m.Seq) <= c.lastSeq[c.layout.Slot(m.Seq)] {
		// No rank can have completed a call that another rank makes only now: the ranks made
		// different calls.
		n.breakMismatched(c, from, m.Seq, m.Call, c.calledAt(m.Seq))
		return
	}
	if !greets {
		n.stats.Stale++
		return
	}
	if !c.early.keep(from, m) {
		n.breakAndNotify(c, verdict{culprit: c.members[from], reason: Protocol, seq: m.Seq}, -1)
	}
}

// greetingMismatch reports whether a peer started the operation with the wrong protocol: one rank
// multicasts and the other does not. Neither would ever answer the other.
func (st *round) greetingMismatch(m *wire.Msg) bool {
	if st.op.Phase() == step.Failed {
		return false
	}
	switch m.Kind {
	case wire.MsgBarrier:
		return st.mc == nil
	case wire.MsgReady:
		return st.multicasts()
	case wire.MsgEagerFetch:
		return st.eg == nil
	}
	return false
}

// execute turns the actions of a round into actions of the node.
func (n *Node) execute(c *comm, st *round, acts []step.Action) {
	n.steps = nil // acts may alias it, and execute may recurse
	n.reportPhase(c, st)
	for i := range acts {
		a := &acts[i]
		switch a.Kind {
		case step.ActSend:
			if st.mail == nil && a.Msg.Kind < wire.MsgFinishedUp { // the window's messages name no call
				c.eager.recordInformed(a.To, st.seq)
			}
			n.send(c.members[a.To], &a.Msg)
		case step.ActMulticast:
			n.out = append(n.out, Action{
				Kind: Multicast, Comm: c.id, Seq: st.seq, Stream: a.Stream, PSN: a.PSN, N: a.N,
				Eager: st.eg != nil,
			})
		case step.ActRead:
			n.out = append(n.out, Action{
				Kind: Read, To: c.members[a.To], Comm: c.id, Seq: st.seq, Stream: a.Stream, Ranges: a.Ranges,
			})
		case step.ActReduce:
			n.out = append(n.out, Action{
				Kind: Contribute, Comm: c.id, Seq: st.seq, Number: st.call.reduction, PSN: a.PSN, N: a.N, Try: a.Try,
				Offer: a.Offer,
			})
		case step.ActFetch:
			n.fetch(c, st, a)
		case step.ActPut:
			n.out = append(n.out, Action{
				Kind: Put, To: c.members[a.To], Comm: c.id, Seq: st.seq,
				PSN: a.PSN, Off: a.Off, Len: a.Len, Input: a.Input, Parts: a.Parts,
			})
		case step.ActComplete:
			n.completeRound(c, st)
		case step.ActClosed:
			n.closeRound(c, st)
		case step.ActDigest:
			n.out = append(n.out, Action{Kind: Digest, Comm: c.id, Seq: st.seq, Geometry: st.mc.Geometry()})
		case step.ActCorrupt:
			n.breakCorrupt(c, a.To, st.seq)
			return
		case step.ActMismatch:
			n.breakMismatched(c, a.To, a.Msg.Seq, a.Msg.Call, st.call.infoFor(a.To))
			return
		}
	}
	n.steps = acts[:0]
}

func (n *Node) send(to int, m *wire.Msg) {
	n.connected[to] = struct{}{}
	n.out = append(n.out, Action{Kind: Send, To: to, Msg: *m})
}

func (n *Node) completeRound(c *comm, st *round) {
	st.done = true
	if !st.multicasts() && st.mail == nil {
		left, _ := st.pending()
		n.others.End(left)
	}
	k := st.call
	if st.inc != nil {
		n.completeReduction(c, st)
	}
	k.running = false
	if c.trace != nil && c.trace.call == k {
		c.trace = nil
	}
	k.spent.add(st.op.Times())
	n.out = append(n.out, Action{Kind: Release, Comm: c.id, Seq: st.seq})
	if k.round++; k.round < k.rounds {
		n.advance(c)
		return
	}
	if st.mail != nil {
		n.endCall(c, k, k.mail.err)
		return
	}
	n.endCall(c, k, nil)
	n.advance(c)
}

// endCall removes a call from the list and reports its end.
func (n *Node) endCall(c *comm, k *call, err *Error) {
	done := Action{Kind: Done, Req: k.req, Comm: c.id, Seq: k.seq, Err: err, Spent: k.spent, Fallback: k.fallback}
	list := &c.calls
	if m := k.mail; m != nil {
		list, done.To, done.Len = &c.mail.calls, m.peer, m.bytes
		if k.kind == wire.Send {
			c.mail.peer(m.peer).sends--
		}
	}
	list.remove(k)
	n.out = append(n.out, done)
}

func (n *Node) closeRound(c *comm, st *round) {
	if st.closed {
		return // breakComm has closed it meanwhile
	}
	st.closed = true
	n.stats.add(st.op.Stats())
	if i := slices.Index(c.live, st); i >= 0 {
		c.live = slices.Delete(c.live, i, i+1)
	}
	n.out = append(n.out, Action{Kind: Closed, Comm: c.id, Seq: st.seq})
}

// timer returns the time of this communicator's next timer.
func (c *comm) timer() step.Time {
	at := c.deadlineTimer()
	for _, st := range c.live {
		at = min(at, st.op.Timer())
	}
	return at
}
