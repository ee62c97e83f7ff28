package protocol

// Config is what an Op needs to know.
type Config struct {
	Geometry *Geometry
	Rank     int
	Comm     uint32 // stamped on messages
	Seq      uint64 // the Op's place in its communicator's order of calls
	Est      *Estimator
	Flow     Flow
	Pool     *Pool  // FlowCredit: room where the process receives,
	Offload  *Pool  // and where the kernel does
	Batch    uint32 // chunks handed to the fabric at a time: the paper's doorbell batch
	Overhead int    // bytes the fabric adds to a chunk on the wire
	Digest   bool   // compare what was received with a neighbour before it is the user's, the same on all ranks
	Others   *int   // how many operations of other kinds this process has under way; may be nil
}

// An Op is one collective on one rank. See the package comment.
type Op struct {
	cfg         Config
	g           *Geometry
	rank        int
	left, right int
	phase       Phase

	bar     barrier
	snd     sender
	arrived []arrivals
	fetch   []fetcher
	tree    sentTree
	cr      grants

	roundAt    Time    // when our last barrier message left
	waited     Time    // how long barrier partners' messages took after that, summed
	rounds     Time    // over so many
	blockEnd   []Time  // per chain: when the last block ended,
	blockOf    []int32 // and the position of its sender, from 1
	barrierAt  Time
	progressAt Time
	allSentAt  Time
	cutAt      Time
	fetchAt    Time
	startAt    Time
	haveAt     Time
	doneAt     Time

	firstCutoff Time   // N/B + alpha after the barrier
	knownTaken  uint64 // datagrams taken from the receive queues when the Op last learned what came or was sent
	asked       uint32 // missing chunks that our left neighbour was asked for,
	askedAt     Time   // and when it was first, until it answers
	reads       int    // under way
	fetchSub    int    // subgroup that reads next
	idleCutoffs int    // cutoffs since the last progress
	repaired    uint64
	haveAll     bool
	finalSent   bool
	finalGot    bool
	sum         digest
}

// NewOp returns an Op that waits for EvStart.
func NewOp(cfg Config) *Op {
	g, n := cfg.Geometry, cfg.Geometry.size
	if cfg.Batch == 0 {
		cfg.Batch = 16
	}
	o := &Op{
		cfg: cfg, g: g, rank: cfg.Rank,
		left: (cfg.Rank + n - 1) % n, right: (cfg.Rank + 1) % n,
		snd: newSender(g, cfg.Rank), tree: newSentTree(cfg.Rank, n, g.onlySender()),
		arrived: make([]arrivals, g.subs), fetch: make([]fetcher, g.subs),
	}
	if cfg.Est.limits.LinkRate > 0 {
		o.blockEnd, o.blockOf = make([]Time, g.Chains()), make([]int32, g.Chains())
	}
	for s := range o.arrived {
		o.arrived[s] = newArrivals(g, newPlacement(g, s, cfg.Rank, cfg.Comm, cfg.Seq), cfg.Rank, cfg.Flow == FlowCredit)
	}
	return o
}

// Placements says where the chunks of each subgroup belong. The driver may replace their Maps
// before EvStart.
func (o *Op) Placements() []*Placement {
	all := make([]*Placement, len(o.arrived))
	for s := range all {
		all[s] = o.arrived[s].Placement
	}
	return all
}

// Step tells the Op what happened and appends what to do to out.
func (o *Op) Step(now Time, ev Event, out []Action) []Action {
	if o.phase >= Closed {
		return out
	}
	switch ev.Kind {
	case EvStart:
		if ev.Offloaded {
			o.cfg.Pool = o.cfg.Offload
		}
		o.startAt = now
		o.phase = Barrier
		o.joinPool()
		o.bar = newBarrier(o.rank, o.g.size, o.cr.all)
		return o.barrierStep(now, out)
	case EvMsg:
		return o.message(now, ev.From, ev.Msg, out)
	case EvSent:
		return o.settle(now, o.sent(now, ev.N, out))
	case EvRead:
		return o.read(now, ev.Sub, ev.Ranges, out)
	case EvTimer:
		return o.timer(now, out)
	case EvDigest:
		o.sum.known, o.sum.ours = true, ev.Digest
		return o.settle(now, out)
	}
	return out
}

// Placed is the step for chunks of a subgroup that datagrams have brought and a receive worker has
// put in place. Each chunk is reported once. Ordinary chunks cause no action.
func (o *Op) Placed(now Time, sub int, q Range, out []Action) []Action {
	if o.phase < Barrier || o.phase >= Closed {
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
		a.came(i, Range{at, stop - at})
		if o.blockEnd != nil {
			o.handedOver(now, sub, i, Range{at, stop - at})
		}
		at = stop
	}
	o.progress(now)
	if o.fetch[sub].wanting > 0 {
		out = o.gained(sub, []Range{q}, out)
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
func (o *Op) wire() int64 { return o.g.chunk + int64(o.cfg.Overhead) }

func (o *Op) send(out []Action, to int, m Msg) []Action {
	m.Comm, m.Seq = o.cfg.Comm, o.cfg.Seq
	return append(out, Action{Kind: ActSend, To: to, Msg: m})
}

func (o *Op) message(now Time, from int, m *Msg, out []Action) []Action {
	switch m.Kind {
	case MsgBarrier:
		if m.Digest != o.g.digest {
			return append(out, Action{Kind: ActMismatch, To: from, Msg: *m})
		}
		if o.phase != Barrier || !o.bar.accepts(from, int(m.Round)) {
			return out
		}
		if int(m.Round) == o.bar.round && o.bar.sent {
			o.waited += now - o.roundAt
			o.rounds++
		}
		o.bar.hear(int(m.Round), m.Grant)
		return o.barrierStep(now, out)
	case MsgActivate, MsgChainSent:
		if from != o.snd.pred {
			return out
		}
		o.snd.predSent = o.snd.predSent || m.Kind == MsgChainSent
		o.snd.active = true
		o.noteChain(now, int(o.g.index[o.rank]), o.snd.predSent)
		if o.phase >= Multicast {
			out = o.handOver(o.pump(now, out))
		}
	case MsgSentUp:
		if o.tree.hear(from) {
			out = o.announce(now, out)
		}
	case MsgAllSent:
		if from == o.tree.parent && !o.tree.all {
			out = o.allSent(now, out)
		}
	case MsgFetch:
		if from == o.right && o.phase < Lingering {
			out = o.asksUs(m, out)
		}
	case MsgAvail:
		if from == o.left && o.phase < Lingering {
			out = o.available(now, m, out)
		}
	case MsgFinal, MsgFinalSum:
		if from == o.right && !o.finalGot {
			o.finalGot = true
			o.sum.told, o.sum.theirs = m.Kind == MsgFinalSum, m.Digest
		}
	case MsgGrantUp:
		if !o.cr.on {
			return out
		}
		for i, c := range o.tree.children {
			if c == from {
				o.cr.child[i] = max(o.cr.child[i], m.Grant)
			}
		}
		out = o.reduceGrants(now, out)
	case MsgGrant:
		if from == o.tree.parent {
			out = o.granted(now, m.Grant, out)
		}
	case MsgMark:
		out = o.marked(now, from, m, out)
	}
	return o.settle(now, out)
}

func (o *Op) barrierStep(now Time, out []Action) []Action {
	for {
		to, round, ok := o.bar.next()
		if !ok {
			break
		}
		o.roundAt = now
		out = o.send(out, to, Msg{
			Kind: MsgBarrier, Round: uint8(round), Grant: o.bar.grant, Digest: o.g.digest,
			Call: o.g.Call(),
		})
	}
	if !o.bar.done() {
		return out
	}
	o.phase, o.barrierAt = Multicast, now
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

func (g *Geometry) describe() CallInfo {
	var sum uint64
	for _, n := range g.shape.Counts {
		sum += uint64(n)
	}
	return CallInfo{Kind: g.shape.Kind, Algo: mcast, Root: uint32(g.shape.Root), Bytes: sum}
}

// settle moves the Op along as far as what it knows allows.
func (o *Op) settle(now Time, out []Action) []Action {
	if o.phase < Multicast || o.phase >= Closed {
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
		out = append(out, Action{Kind: ActDigest})
	}
	if o.haveAll && !o.finalSent && (o.sum.known || !o.digests()) {
		o.finalSent = true
		if o.g.size > 1 {
			out = o.send(out, o.left, o.sum.message())
		}
	}
	if o.haveAll && o.snd.finished() && o.phase < Handshake {
		o.phase, o.haveAt = Handshake, now
	}
	if o.sum.differs() {
		if !o.sum.said {
			o.sum.said = true
			out = append(out, Action{Kind: ActCorrupt, To: o.right})
		}
		return out // the driver ends it
	}
	if o.phase == Handshake && o.finalSent && (o.finalGot || o.g.size == 1) {
		o.phase, o.doneAt = Lingering, now
		out = append(out, Action{Kind: ActComplete})
	}
	// Others may still need us to relay; after that the Op is of no use to anyone.
	if o.phase == Lingering && o.tree.all && o.cr.all >= o.g.total && !o.cr.joined {
		o.phase = Closed
		out = append(out, Action{Kind: ActClosed})
	}
	return out
}

// Timer is when the Op wants EvTimer, Never if it does not.
func (o *Op) Timer() Time {
	if o.phase < Multicast || o.phase >= Closed {
		return Never
	}
	at := min(o.cutoffAt(), o.markAt(), o.passAt())
	if s := &o.snd; s.active && s.handed < s.total && !s.blocked && s.handed-s.done < 2*o.cfg.Batch {
		at = min(at, s.nextAt)
	}
	return at
}

func (o *Op) timer(now Time, out []Action) []Action {
	if o.phase < Multicast {
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

// Fail ends the Op at once; nothing it holds is used again.
func (o *Op) Fail() {
	if o.phase < Closed {
		o.leavePool()
		o.phase = Failed
	}
}
