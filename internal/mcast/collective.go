package mcast

import (
	"slices"

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
	Pool     *Pool   // FlowCredit: room for operations whose datagrams the process receives
	Charge   Charge  // FlowCredit: room that a chunk takes; 0 for one place
	Offload  *Pool   // FlowCredit: room for operations whose datagrams the kernel receives
	Batch    uint32  // chunks handed to the fabric at a time: the paper's doorbell batch
	Super    uint32  // chunks that the fabric sends at the cost of one, as a super-packet; 0 for 1
	Overhead int     // bytes that the fabric adds to a chunk on the wire
	Digest   bool    // whether neighbours compare digests of the received data; the same on all ranks
	Others   *Others // operations of other kinds in this process; may be nil
}

// A Collective is one collective on one rank. See the package comment.
type Collective struct {
	cfg         Config
	g           *Geometry
	rank        int
	left, right int
	phase       step.Phase
	times       step.Times
	stats       step.Stats

	bar     barrier
	snd     sender
	blocks  []blockEnd // by chain; nil if the rate of the link is unknown
	tree    sentTree
	count   tally
	arrived []arrivals // by stream
	cr      grants
	cut     cutoff
	fetch   recovery
	final   handshake
}

// New returns a Collective that waits for EvStart.
func New(cfg Config) *Collective {
	g, n := cfg.Geometry, cfg.Geometry.size
	if cfg.Batch == 0 {
		cfg.Batch = 16
	}
	only := -1
	if len(g.senders) == 1 {
		only = g.senders[0]
	}
	if cfg.Charge == 0 {
		cfg.Charge = onePlace
	}
	o := &Collective{
		cfg: cfg, g: g, rank: cfg.Rank,
		left: (cfg.Rank + n - 1) % n, right: (cfg.Rank + 1) % n,
		snd: newSender(g, cfg.Rank), tree: newSentTree(cfg.Rank, n, only),
		arrived: make([]arrivals, g.Streams()), fetch: recovery{streams: make([]fetcher, g.Streams())},
	}
	if cfg.Est.limits.LinkRate > 0 {
		o.blocks = make([]blockEnd, g.Chains())
	}
	for t := range o.arrived {
		p := newPlacement(g, t, cfg.Rank, cfg.Comm, cfg.Seq)
		o.arrived[t] = newArrivals(&o.count, g, p, cfg.Rank, cfg.Flow == FlowCredit)
		o.fetch.streams[t] = newFetcher(p)
	}
	return o
}

// Placements returns the placement of each stream. The driver may replace their Maps before EvStart.
func (o *Collective) Placements() []*Placement {
	all := make([]*Placement, len(o.arrived))
	for t := range all {
		all[t] = o.arrived[t].Placement
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
		return o.handleReadDone(now, ev.Stream, ev.Ranges, out)
	case step.EvTimer:
		return o.handleTimer(now, out)
	case step.EvDigest:
		o.final.known, o.final.ours = true, ev.Digest
		return o.settle(now, out)
	}
	return out
}

// Placed handles chunks of a stream that a receive worker has placed from datagrams. The driver
// reports each chunk once. Most reports cause no action.
func (o *Collective) Placed(now step.Time, stream int, q wire.Range, out []step.Action) []step.Action {
	if o.phase < step.Barrier || o.phase >= step.Closed {
		return out
	}
	a, f := &o.arrived[stream], &o.fetch.streams[stream]
	if o.cr.on {
		o.cfg.Pool.Took(now)
	}
	if f.asked.Count() > 0 {
		if late := f.asked.ClearRange(q.PSN, q.N); late > 0 {
			o.stats.Late += uint64(late)
			o.cfg.Est.Late(now)
		}
	}
	for at, end := q.PSN, q.PSN+q.N; at < end; {
		j := o.g.find(stream, at)
		stop := min(end, o.g.base[stream][j+1])
		a.recordPlaced(j, wire.Range{PSN: at, N: stop - at})
		if o.blocks != nil {
			o.observeHandover(now, stream, j, wire.Range{PSN: at, N: stop - at})
		}
		at = stop
	}
	o.recordProgress(now)
	if f.wanted.Count() > 0 {
		out = o.offerPlaced(stream, []wire.Range{q}, out)
	}
	if o.cr.joined {
		out = o.updateGrant(now, out)
	}
	out = o.pumpHeld(now, out)
	if o.count.missing == 0 {
		out = o.settle(now, out)
	}
	return out
}

// running reports whether the Collective has left the barrier and is not closed.
func (o *Collective) running() bool { return o.phase >= step.Multicast && o.phase < step.Closed }

// wireSize returns the size of some chunks on the network.
func (o *Collective) wireSize(chunks uint64) int64 {
	return int64(chunks) * (o.g.chunk + int64(o.cfg.Overhead))
}

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
		o.bar.receive(now, int(m.Round), m.Grant)
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
		if t := int(m.Stream); from == o.right && o.phase < step.Lingering && t < o.g.Streams() {
			out = o.sendRanges(out, o.right, wire.MsgAvail, t, o.fetch.streams[t].serve(m.Ranges))
		}
	case wire.MsgAvail:
		if from == o.left && o.phase < step.Lingering && int(m.Stream) < o.g.Streams() {
			out = o.handleOffers(now, m, out)
		}
	case wire.MsgFinal, wire.MsgFinalSum:
		if from == o.right {
			o.final.receive(m)
		}
	case wire.MsgGrantUp:
		if i := slices.Index(o.tree.children, from); o.cr.on && i >= 0 {
			o.cr.child[i] = max(o.cr.child[i], m.Grant)
			out = o.reduceGrants(now, out)
		}
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
	for to, round, ok := o.bar.next(now); ok; to, round, ok = o.bar.next(now) {
		out = o.send(out, to, wire.Msg{
			Kind: wire.MsgBarrier, Round: uint8(round), Grant: o.bar.grant, Digest: o.g.digest,
			Call: o.g.Call(),
		})
	}
	if !o.bar.done() {
		return out
	}
	o.phase, o.times.Barrier = step.Multicast, now
	o.recordProgress(now)
	if o.bar.exchanges > 0 {
		o.cfg.Est.Latency(o.bar.waited / o.bar.exchanges)
	}
	o.times.Cutoff = o.cfg.Est.Slack(o.wireSize(uint64(o.count.missing)))
	o.adoptBarrierGrant(now, o.bar.grant)
	o.snd.active = o.snd.active || o.snd.pred < 0
	out = o.announceSent(now, o.passTurn(o.pump(now, out)))
	return o.settle(now, o.reduceGrants(now, out))
}

// settle advances the Collective as far as its state allows.
func (o *Collective) settle(now step.Time, out []step.Action) []step.Action {
	if !o.running() {
		return out
	}
	h, compare := &o.final, o.cfg.Digest && o.g.size > 1
	if !h.haveAll && o.count.missing == 0 {
		h.haveAll = true
		if o.times.Fetch == 0 {
			o.cfg.Est.Received(o.wireSize(o.count.received), now-o.times.Barrier)
		}
		if o.stats.Late == 0 {
			o.cfg.Est.InTime()
		}
	}
	if h.haveAll && compare && !h.requested {
		h.requested = true
		out = append(out, step.Action{Kind: step.ActDigest})
	}
	if h.haveAll && !h.sent && (h.known || !compare) {
		h.sent = true
		if o.g.size > 1 {
			out = o.send(out, o.left, h.message())
		}
	}
	if h.haveAll && o.snd.finished() && o.phase < step.Handshake {
		o.phase, o.times.Have = step.Handshake, now
	}
	if h.differs() {
		if !h.reported {
			h.reported = true
			out = append(out, step.Action{Kind: step.ActCorrupt, To: o.right})
		}
		return out // the driver fails the operation
	}
	if o.phase == step.Handshake && h.sent && (h.received || o.g.size == 1) {
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
	if !o.running() {
		return step.Never
	}
	at := min(o.cutoffAt(), o.markAt(), o.consumeAt())
	if s := &o.snd; s.active && s.handed < s.total && !s.blocked && s.handed-s.done < 2*o.cfg.Batch {
		if s.share.held {
			return min(at, max(s.nextAt, o.shareAt()))
		}
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
