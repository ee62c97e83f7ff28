package mcast

import (
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Config holds the parameters of a Collective.
type Config struct {
	Geometry *Geometry
	Rank     int
	Comm     uint32 // communicator id for messages
	Seq      uint64 // position in the communicator's order of calls
	Est      *Estimator
	Flow     Flow
	Pool     *Pool  // FlowCredit: room for operations whose datagrams the process receives
	Charge   Charge // FlowCredit: room that a chunk takes; 0 for one place
	Offload  *Pool  // FlowCredit: room for operations whose datagrams the kernel receives
	Batch    uint32 // chunks handed to the fabric at a time: the paper's doorbell batch
	Overhead int    // bytes that the fabric adds to a chunk on the wire
	Digest   bool   // whether neighbours compare digests of the received data; the same on all ranks
	Others   *int   // number of operations of other kinds in flight in this process; may be nil
}

// A Collective is one collective on one rank. See the package comment.
type Collective struct {
	cfg         Config
	g           *Geometry
	rank        int
	left, right int
	phase       step.Phase
	times       step.Times

	bar     barrier
	snd     sender
	arrived []arrivals
	fetch   []fetcher
	tree    sentTree
	cr      grants

	roundAt    step.Time   // time of this rank's last barrier message
	waited     step.Time   // summed time from such a message to the partner's message
	rounds     step.Time   // number of exchanges in waited
	blockEnd   []step.Time // per chain: end time of the last block
	blockOf    []int32     // per chain: position of that block's sender, counted from 1
	progressAt step.Time
	allSentAt  step.Time
	cutAt      step.Time

	knownTaken  uint64    // pool's taken count when the Collective last learned of arrived or sent chunks
	asked       uint32    // missing chunks requested from the left neighbour
	askedAt     step.Time // time of the first request, until the neighbour answers it
	reads       int       // reads in progress
	fetchSub    int       // subgroup of the next read
	idleCutoffs int       // cutoffs since the last progress
	repaired    uint64
	haveAll     bool
	finalSent   bool
	finalGot    bool
	sum         digest
}

// New returns a Collective that waits for EvStart.
func New(cfg Config) *Collective {
	g, n := cfg.Geometry, cfg.Geometry.size
	if cfg.Batch == 0 {
		cfg.Batch = 16
	}
	if cfg.Charge == 0 {
		cfg.Charge = onePlace
	}
	o := &Collective{
		cfg: cfg, g: g, rank: cfg.Rank,
		left: (cfg.Rank + n - 1) % n, right: (cfg.Rank + 1) % n,
		snd: newSender(g, cfg.Rank), tree: newSentTree(cfg.Rank, n, g.onlySender()),
		arrived: make([]arrivals, g.subs), fetch: make([]fetcher, g.subs),
	}
	if cfg.Est.limits.LinkRate > 0 {
		o.blockEnd, o.blockOf = make([]step.Time, g.Chains()), make([]int32, g.Chains())
	}
	for s := range o.arrived {
		o.arrived[s] = newArrivals(g, newPlacement(g, s, cfg.Rank, cfg.Comm, cfg.Seq), cfg.Rank, cfg.Flow == FlowCredit)
	}
	return o
}

// Placements returns the placement of each subgroup. The driver may replace their Maps before
// EvStart.
func (o *Collective) Placements() []*Placement {
	all := make([]*Placement, len(o.arrived))
	for s := range all {
		all[s] = o.arrived[s].Placement
	}
	return all
}

// Step handles an event and appends the resulting actions to out.
func (o *Collective) Step(now step.Time, ev step.Event, out []step.Action) []step.Action {
	if o.phase >= step.Closed {
		return out
	}
	switch ev.Kind {
	case step.EvStart:
		if ev.Offloaded {
			o.cfg.Pool = o.cfg.Offload
		}
		o.times.Start = now
		o.phase = step.Barrier
		o.joinPool()
		o.bar = newBarrier(o.rank, o.g.size, o.cr.all)
		return o.advanceBarrier(now, out)
	case step.EvMsg:
		return o.handleMessage(now, ev.From, ev.Msg, out)
	case step.EvSent:
		return o.settle(now, o.handleSent(now, ev.N, out))
	case step.EvRead:
		return o.handleReadDone(now, ev.Sub, ev.Ranges, out)
	case step.EvTimer:
		return o.handleTimer(now, out)
	case step.EvDigest:
		o.sum.known, o.sum.ours = true, ev.Digest
		return o.settle(now, out)
	}
	return out
}

// Placed handles chunks of a subgroup that a receive worker has placed from datagrams. The driver
// reports each chunk once. Most reports cause no action.
func (o *Collective) Placed(now step.Time, sub int, q wire.Range, out []step.Action) []step.Action {
	if o.phase < step.Barrier || o.phase >= step.Closed {
		return out
	}
	a := &o.arrived[sub]
	if o.cr.on {
		o.cfg.Pool.Took(now)
	}
	if a.asked != nil {
		if n := a.asked.ClearRange(q.PSN, q.N); n > 0 {
			o.asked -= n
			a.late += uint64(n)
			o.cfg.Est.Late(now)
		}
	}
	for at, end := q.PSN, q.PSN+q.N; at < end; {
		i := o.g.sender(sub, at)
		stop := min(end, o.g.base[sub][i+1])
		a.recordPlaced(i, wire.Range{PSN: at, N: stop - at})
		if o.blockEnd != nil {
			o.observeHandover(now, sub, i, wire.Range{PSN: at, N: stop - at})
		}
		at = stop
	}
	o.recordProgress(now)
	if o.fetch[sub].wantedCount > 0 {
		out = o.offerPlaced(sub, []wire.Range{q}, out)
	}
	if o.cr.joined {
		out = o.updateGrant(now, out)
	}
	if a.missing == 0 {
		out = o.settle(now, out)
	}
	return out
}

// chunkWireSize returns the size of a chunk on the network.
func (o *Collective) chunkWireSize() int64 { return o.g.chunk + int64(o.cfg.Overhead) }

func (o *Collective) send(out []step.Action, to int, m wire.Msg) []step.Action {
	m.Comm, m.Seq = o.cfg.Comm, o.cfg.Seq
	return append(out, step.Action{Kind: step.ActSend, To: to, Msg: m})
}

func (o *Collective) handleMessage(now step.Time, from int, m *wire.Msg, out []step.Action) []step.Action {
	switch m.Kind {
	case wire.MsgBarrier:
		if m.Digest != o.g.digest {
			return append(out, step.Action{Kind: step.ActMismatch, To: from, Msg: *m})
		}
		if o.phase != step.Barrier || !o.bar.accepts(from, int(m.Round)) {
			return out
		}
		if int(m.Round) == o.bar.round && o.bar.sent {
			o.waited += now - o.roundAt
			o.rounds++
		}
		o.bar.receive(int(m.Round), m.Grant)
		return o.advanceBarrier(now, out)
	case wire.MsgActivate, wire.MsgChainSent:
		if from != o.snd.pred {
			return out
		}
		o.snd.predSent = o.snd.predSent || m.Kind == wire.MsgChainSent
		o.snd.active = true
		o.recordChain(now, int(o.g.index[o.rank]), o.snd.predSent)
		if o.phase >= step.Multicast {
			out = o.passTurn(o.pump(now, out))
		}
	case wire.MsgSentUp:
		if o.tree.childFinished(from) {
			out = o.announceSent(now, out)
		}
	case wire.MsgAllSent:
		if from == o.tree.parent && !o.tree.allSent {
			out = o.recordAllSent(now, out)
		}
	case wire.MsgFetch:
		if from == o.right && o.phase < step.Lingering {
			out = o.serveFetch(m, out)
		}
	case wire.MsgAvail:
		if from == o.left && o.phase < step.Lingering {
			out = o.recordOffers(now, m, out)
		}
	case wire.MsgFinal, wire.MsgFinalSum:
		if from == o.right && !o.finalGot {
			o.finalGot = true
			o.sum.received, o.sum.theirs = m.Kind == wire.MsgFinalSum, m.Digest
		}
	case wire.MsgGrantUp:
		if !o.cr.on {
			return out
		}
		for i, c := range o.tree.children {
			if c == from {
				o.cr.child[i] = max(o.cr.child[i], m.Grant)
			}
		}
		out = o.reduceGrants(now, out)
	case wire.MsgGrant:
		if from == o.tree.parent {
			out = o.acceptGrant(now, m.Grant, out)
		}
	case wire.MsgMark:
		out = o.handleMark(now, from, m, out)
	}
	return o.settle(now, out)
}

func (o *Collective) advanceBarrier(now step.Time, out []step.Action) []step.Action {
	for {
		to, round, ok := o.bar.next()
		if !ok {
			break
		}
		o.roundAt = now
		out = o.send(out, to, wire.Msg{
			Kind: wire.MsgBarrier, Round: uint8(round), Grant: o.bar.grant, Digest: o.g.digest,
			Call: o.g.Call(),
		})
	}
	if !o.bar.done() {
		return out
	}
	o.phase, o.times.Barrier = step.Multicast, now
	o.recordTaken()
	if o.rounds > 0 {
		o.cfg.Est.Latency(o.waited / o.rounds)
	}
	o.times.Cutoff = o.cfg.Est.Slack(int64(o.missing()) * o.chunkWireSize())
	o.adoptBarrierGrant(now, o.bar.grant)
	o.snd.active = o.snd.active || o.snd.pred < 0
	out = o.passTurn(o.pump(now, out))
	out = o.announceSent(now, out)
	if o.cr.on {
		out = o.reduceGrants(now, out)
	}
	return o.settle(now, out)
}

func (g *Geometry) describe() wire.Call {
	var sum uint64
	for _, n := range g.shape.Counts {
		sum += uint64(n)
	}
	return wire.Call{Kind: g.shape.Kind, Algo: wire.Mcast, Root: uint32(g.shape.Root), Bytes: sum}
}

// settle advances the Collective as far as its state allows.
func (o *Collective) settle(now step.Time, out []step.Action) []step.Action {
	if o.phase < step.Multicast || o.phase >= step.Closed {
		return out
	}
	if !o.haveAll && o.missing() == 0 {
		o.haveAll = true
		var chunks, late uint64
		for i := range o.arrived {
			chunks += o.arrived[i].received
			late += o.arrived[i].late
		}
		if o.times.Fetch == 0 {
			o.cfg.Est.Received(int64(chunks)*o.chunkWireSize(), now-o.times.Barrier)
		}
		if late == 0 {
			o.cfg.Est.InTime()
		}
	}
	if o.haveAll && o.comparesDigests() && !o.sum.requested {
		o.sum.requested = true
		out = append(out, step.Action{Kind: step.ActDigest})
	}
	if o.haveAll && !o.finalSent && (o.sum.known || !o.comparesDigests()) {
		o.finalSent = true
		if o.g.size > 1 {
			out = o.send(out, o.left, o.sum.message())
		}
	}
	if o.haveAll && o.snd.finished() && o.phase < step.Handshake {
		o.phase, o.times.Have = step.Handshake, now
	}
	if o.sum.differs() {
		if !o.sum.reported {
			o.sum.reported = true
			out = append(out, step.Action{Kind: step.ActCorrupt, To: o.right})
		}
		return out // the driver fails the operation
	}
	if o.phase == step.Handshake && o.finalSent && (o.finalGot || o.g.size == 1) {
		o.phase, o.times.Done = step.Lingering, now
		out = append(out, step.Action{Kind: step.ActComplete})
	}
	// Other ranks may still need this rank as a relay. After that the Collective can close.
	if o.phase == step.Lingering && o.tree.allSent && o.cr.all >= o.g.total && !o.cr.joined {
		o.phase = step.Closed
		out = append(out, step.Action{Kind: step.ActClosed})
	}
	return out
}

// Timer returns the time at which the Collective needs EvTimer, or Never.
func (o *Collective) Timer() step.Time {
	if o.phase < step.Multicast || o.phase >= step.Closed {
		return step.Never
	}
	at := min(o.cutoffAt(), o.markAt(), o.consumeAt())
	if s := &o.snd; s.active && s.handed < s.total && !s.blocked && s.handed-s.done < 2*o.cfg.Batch {
		at = min(at, s.nextAt)
	}
	return at
}

func (o *Collective) handleTimer(now step.Time, out []step.Action) []step.Action {
	if o.phase < step.Multicast {
		return out
	}
	since := now
	if s := &o.snd; s.active && !s.blocked && s.nextAt > 0 {
		since = min(now, s.nextAt)
	}
	out = o.pumpSince(since, now, out)
	if now >= o.markAt() {
		out = o.sendMark(out)
	}
	if now >= o.consumeAt() {
		o.consumeAnnounced()
		out = o.updateGrant(now, out)
	}
	if now >= o.cutoffAt() {
		out = o.handleCutoff(now, out)
	}
	return o.settle(now, out)
}

// Fail ends the Collective at once. Its resources are not used again.
func (o *Collective) Fail() {
	if o.phase < step.Closed {
		o.leavePool()
		o.phase = step.Failed
	}
}
