package mcast

import (
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Config is what a Collective needs to know.
type Config struct {
	Geometry *Geometry
	Rank     int
	Comm     uint32 // stamped on messages
	Seq      uint64 // the Collective's place in its communicator's order of calls
	Est      *Estimator
	Flow     Flow
	Pool     *Pool  // FlowCredit: room where the process receives,
	Offload  *Pool  // and where the kernel does
	Batch    uint32 // chunks handed to the fabric at a time: the paper's doorbell batch
	Overhead int    // bytes the fabric adds to a chunk on the wire
	Digest   bool   // compare what was received with a neighbour before it is the user's, the same on all ranks
	Others   *int   // how many operations of other kinds this process has under way; may be nil
}

// A Collective is one collective on one rank. See the package comment.
type Collective struct {
	cfg         Config
	g           *Geometry
	rank        int
	left, right int
	phase       step.Phase

	bar     barrier
	snd     sender
	arrived []arrivals
	fetch   []fetcher
	tree    sentTree
	cr      grants

	roundAt    step.Time   // when our last barrier message left
	waited     step.Time   // how long barrier partners' messages took after that, summed
	rounds     step.Time   // over so many
	blockEnd   []step.Time // per chain: when the last block ended,
	blockOf    []int32     // and the position of its sender, from 1
	barrierAt  step.Time
	progressAt step.Time
	allSentAt  step.Time
	cutAt      step.Time
	fetchAt    step.Time
	startAt    step.Time
	haveAt     step.Time
	doneAt     step.Time

	firstCutoff step.Time // N/B + alpha after the barrier
	knownTaken  uint64    // datagrams taken from the receive queues when the Collective last learned what came or was sent
	asked       uint32    // missing chunks that our left neighbour was asked for,
	askedAt     step.Time // and when it was first, until it answers
	reads       int       // under way
	fetchSub    int       // subgroup that reads next
	idleCutoffs int       // cutoffs since the last progress
	repaired    uint64
	haveAll     bool
	finalSent   bool
	finalGot    bool
	sum         digest
}

// NewOp returns a Collective that waits for EvStart.
func New(cfg Config) *Collective {
	g, n := cfg.Geometry, cfg.Geometry.size
	if cfg.Batch == 0 {
		cfg.Batch = 16
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

// Placements says where the chunks of each subgroup belong. The driver may replace their Maps
// before EvStart.
func (o *Collective) Placements() []*Placement {
	all := make([]*Placement, len(o.arrived))
	for s := range all {
		all[s] = o.arrived[s].Placement
	}
	return all
}

// Step tells the Collective what happened and appends what to do to out.
func (o *Collective) Step(now step.Time, ev step.Event, out []step.Action) []step.Action {
	if o.phase >= step.Closed {
		return out
	}
	switch ev.Kind {
	case step.EvStart:
		if ev.Offloaded {
			o.cfg.Pool = o.cfg.Offload
		}
		o.startAt = now
		o.phase = step.Barrier
		o.joinPool()
		o.bar = newBarrier(o.rank, o.g.size, o.cr.all)
		return o.barrierStep(now, out)
	case step.EvMsg:
		return o.message(now, ev.From, ev.Msg, out)
	case step.EvSent:
		return o.settle(now, o.sent(now, ev.N, out))
	case step.EvRead:
		return o.read(now, ev.Sub, ev.Ranges, out)
	case step.EvTimer:
		return o.timer(now, out)
	case step.EvDigest:
		o.sum.known, o.sum.ours = true, ev.Digest
		return o.settle(now, out)
	}
	return out
}

// Placed is the step for chunks of a subgroup that datagrams have brought and a receive worker has
// put in place. Each chunk is reported once. Ordinary chunks cause no action.
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
		a.came(i, wire.Range{PSN: at, N: stop - at})
		if o.blockEnd != nil {
			o.handedOver(now, sub, i, wire.Range{PSN: at, N: stop - at})
		}
		at = stop
	}
	o.progress(now)
	if o.fetch[sub].wanting > 0 {
		out = o.gained(sub, []wire.Range{q}, out)
	}
	if o.cr.joined {
		out = o.consumedMore(now, out)
	}
	if a.missing == 0 {
		out = o.settle(now, out)
	}
	return out
}

// wire is the size of a chunk on the network.
func (o *Collective) wire() int64 { return o.g.chunk + int64(o.cfg.Overhead) }

func (o *Collective) send(out []step.Action, to int, m wire.Msg) []step.Action {
	m.Comm, m.Seq = o.cfg.Comm, o.cfg.Seq
	return append(out, step.Action{Kind: step.ActSend, To: to, Msg: m})
}

func (o *Collective) message(now step.Time, from int, m *wire.Msg, out []step.Action) []step.Action {
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
		o.bar.hear(int(m.Round), m.Grant)
		return o.barrierStep(now, out)
	case wire.MsgActivate, wire.MsgChainSent:
		if from != o.snd.pred {
			return out
		}
		o.snd.predSent = o.snd.predSent || m.Kind == wire.MsgChainSent
		o.snd.active = true
		o.noteChain(now, int(o.g.index[o.rank]), o.snd.predSent)
		if o.phase >= step.Multicast {
			out = o.handOver(o.pump(now, out))
		}
	case wire.MsgSentUp:
		if o.tree.hear(from) {
			out = o.announce(now, out)
		}
	case wire.MsgAllSent:
		if from == o.tree.parent && !o.tree.all {
			out = o.allSent(now, out)
		}
	case wire.MsgFetch:
		if from == o.right && o.phase < step.Lingering {
			out = o.asksUs(m, out)
		}
	case wire.MsgAvail:
		if from == o.left && o.phase < step.Lingering {
			out = o.available(now, m, out)
		}
	case wire.MsgFinal, wire.MsgFinalSum:
		if from == o.right && !o.finalGot {
			o.finalGot = true
			o.sum.told, o.sum.theirs = m.Kind == wire.MsgFinalSum, m.Digest
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
			out = o.granted(now, m.Grant, out)
		}
	case wire.MsgMark:
		out = o.marked(now, from, m, out)
	}
	return o.settle(now, out)
}

func (o *Collective) barrierStep(now step.Time, out []step.Action) []step.Action {
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
	o.phase, o.barrierAt = step.Multicast, now
	o.known()
	if o.rounds > 0 {
		o.cfg.Est.Latency(o.waited / o.rounds)
	}
	o.firstCutoff = o.cfg.Est.Slack(int64(o.missing()) * o.wire())
	o.barrierGrant(now, o.bar.grant)
	o.snd.active = o.snd.active || o.snd.pred < 0
	out = o.handOver(o.pump(now, out))
	out = o.announce(now, out)
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

// settle moves the Collective along as far as what it knows allows.
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
		if o.fetchAt == 0 {
			o.cfg.Est.Received(int64(chunks)*o.wire(), now-o.barrierAt)
		}
		if late == 0 {
			o.cfg.Est.InTime()
		}
	}
	if o.haveAll && o.digests() && !o.sum.asked {
		o.sum.asked = true
		out = append(out, step.Action{Kind: step.ActDigest})
	}
	if o.haveAll && !o.finalSent && (o.sum.known || !o.digests()) {
		o.finalSent = true
		if o.g.size > 1 {
			out = o.send(out, o.left, o.sum.message())
		}
	}
	if o.haveAll && o.snd.finished() && o.phase < step.Handshake {
		o.phase, o.haveAt = step.Handshake, now
	}
	if o.sum.differs() {
		if !o.sum.said {
			o.sum.said = true
			out = append(out, step.Action{Kind: step.ActCorrupt, To: o.right})
		}
		return out // the driver ends it
	}
	if o.phase == step.Handshake && o.finalSent && (o.finalGot || o.g.size == 1) {
		o.phase, o.doneAt = step.Lingering, now
		out = append(out, step.Action{Kind: step.ActComplete})
	}
	// Others may still need us to relay; after that the Collective is of no use to anyone.
	if o.phase == step.Lingering && o.tree.all && o.cr.all >= o.g.total && !o.cr.joined {
		o.phase = step.Closed
		out = append(out, step.Action{Kind: step.ActClosed})
	}
	return out
}

// Timer is when the Collective wants EvTimer, Never if it does not.
func (o *Collective) Timer() step.Time {
	if o.phase < step.Multicast || o.phase >= step.Closed {
		return step.Never
	}
	at := min(o.cutoffAt(), o.markAt(), o.passAt())
	if s := &o.snd; s.active && s.handed < s.total && !s.blocked && s.handed-s.done < 2*o.cfg.Batch {
		at = min(at, s.nextAt)
	}
	return at
}

func (o *Collective) timer(now step.Time, out []step.Action) []step.Action {
	if o.phase < step.Multicast {
		return out
	}
	since := now
	if s := &o.snd; s.active && !s.blocked && s.nextAt > 0 {
		since = min(now, s.nextAt)
	}
	out = o.pumpSince(since, now, out)
	if now >= o.markAt() {
		out = o.mark(out)
	}
	if now >= o.passAt() {
		o.pass()
		out = o.consumedMore(now, out)
	}
	if now >= o.cutoffAt() {
		out = o.cutoff(now, out)
	}
	return o.settle(now, out)
}

// Fail ends the Collective at once; nothing it holds is used again.
func (o *Collective) Fail() {
	if o.phase < step.Closed {
		o.leavePool()
		o.phase = step.Failed
	}
}
