package mcast

import (
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Credit keeps a slow receiver from being overrun. All chunks of a Collective have a
// place in one order, the merged order of its chains (chains.position). A rank
// grants places up to what it has consumed (placed, or sent and no longer on
// their way to it) plus the room it lends to the Collective; the least grant of all
// ranks is found on the control tree and handed back; a sender sends only
// chunks whose place is below it.
//
// Never overrun: at most `grant` places are sent in all, so at most grant minus
// consumed are on their way to any rank, which is no more than it lent. A pool
// lends more than it has only when more operations are in flight than it has room
// for, as each is owed one place; and datagrams that overtake others, or come
// twice, are not accounted for.
//
// Never stuck: let everything sent be consumed everywhere, T chunks. The first
// unsent place p is at most T, and every rank's grant is above T because it
// lends at least one place, so p may be sent. Its sender is active, because
// places grow along each chain. Lost tails do not stop this: a datagram proves
// what was sent before it, and a sender that is stalled, or was its chain's
// last, announces what it has sent on the reliable path (MsgMark). Such an
// announcement overtakes datagrams that are on their way or in our receive queue, so
// what it covers counts as consumed only once the queue must be past it: after as
// many datagrams as it holds were taken, or none for as long as all that were granted
// take to come.
//
// A sender that is stalled gives the grant some time to come. Once an announcement was
// needed, somebody's or its own, something is being lost: then every sender announces
// what it sends as soon as it has left, so that nobody has to stall first.

// A Pool is a process's room for datagrams not yet consumed, shared by
// operations of all its communicators. A process has one pool for operations that it
// receives for itself, and one for those that the kernel receives for.
type Pool struct {
	size uint64
	lent uint64
	ops  uint64

	taken   *place.Taken // datagrams taken from the receive queues, ever
	takenAt step.Time    // when the last of those that were reported was reported
}

// Took learns of datagrams taken from the receive queues.
func (p *Pool) Took(now step.Time) { p.takenAt = now }

// NewPool returns a pool with room for size datagrams. taken is what the receive workers share; nil:
// there are none.
func NewPool(size uint64, taken *place.Taken) *Pool {
	if taken == nil {
		taken = &place.Taken{}
	}
	return &Pool{size: max(1, size), taken: taken}
}

// Lent is how much room operations hold now.
func (p *Pool) Lent() uint64 { return p.lent }

// join lends to a new operation of total chunks: at most an eighth of what is
// free, half where there is plenty, so that the next ones find something too (it gets its share as soon as it
// consumes), and always at least one place. Otherwise an operation
// that cannot finish before another one could hold all and wait for ever.
func (p *Pool) join(total uint64) uint64 {
	p.ops++
	n := uint64(1)
	if p.size > p.lent {
		free := p.size - p.lent
		// Where there is plenty, the first gets enough to begin at full speed.
		n = max(1, min(total, max(free/8, min(free/2, free-min(free, plenty)))))
	}
	p.lent += n
	return n
}

// plenty is room for so many datagrams that messages about fewer are not worth it.
const plenty = 256

// quantum is what must have changed to be worth a message: little where there is
// little room, so that nobody waits for it; up to a quarter where there is plenty.
func (p *Pool) quantum() uint64 {
	return max(1, p.size/16, (p.size-min(p.size, plenty))/4)
}

// more lends further places to an operation that holds some, and can use no more than most of them.
func (p *Pool) more(held, most uint64) uint64 {
	share := max(1, p.size/p.ops)
	if held >= min(share, most) {
		return 0
	}
	var free uint64
	if p.size > p.lent {
		free = p.size - p.lent
	}
	n := min(share-held, most-held, free)
	if n == 0 && held == 0 {
		n = 1
	}
	p.lent += n
	return n
}

func (p *Pool) giveBack(n uint64) { p.lent -= n }

// grants is one Collective's credit.
type grants struct {
	on       bool
	joined   bool   // we are counted in the pool
	own      uint64 // what we grant
	consumed uint64 // what we had consumed when we last looked
	child    []uint64
	upTold   uint64    // what our parent knows of our subtree
	all      uint64    // what all grant: places below it may be sent
	quantum  uint64    // smaller changes are not worth a message
	movedAt  step.Time // when all grew last
	needed   bool      // somebody had to announce what it has sent
	marked   bool      // we announced what we have sent,
	markSent uint32    // this much of it,
	markPred bool      // and this of those before us

	noted      bool      // something was announced as sent that we may not have consumed,
	notedAt    step.Time // then,
	notedTaken uint64
}

// noted remembers that the reliable path told us of chunks that were sent.
func (o *Collective) noted(now step.Time) {
	o.idleCutoffs = 0 // there may be something to fetch now
	o.known()
	if c := &o.cr; c.joined {
		c.noted, c.notedAt, c.notedTaken = true, now, o.cfg.Pool.taken.Count()
	}
}

// passAt is when what was announced counts as consumed.
func (o *Collective) passAt() step.Time {
	c, p := &o.cr, o.cfg.Pool
	switch {
	case !c.noted:
		return step.Never
	case p.taken.Count()-c.notedTaken >= p.size:
		return c.notedAt // the queue is past it, whoever's datagrams they were
	}
	under := c.own - min(c.own, c.consumed) // granted, and not known to have come
	quiet := max(c.notedAt, p.takenAt) + o.cfg.Est.Transit(int64(under)*o.wire())
	// Another operation may take datagrams all the time, and few, because we hold the room. All that
	// was on its way to us was lent, so it has come in the time that so much takes.
	return min(quiet, c.notedAt+2*o.cfg.Est.Transit(int64(p.lent)*o.wire()))
}

// pass counts what was announced as consumed. Only the clock calls it: whoever looks at the clock has
// seen before whether datagrams wait (Queued).
func (o *Collective) pass() {
	o.cr.noted = false
	for i := range o.arrived {
		o.arrived[i].passAll()
	}
}

// joinPool sets what we grant to begin with.
func (o *Collective) joinPool() {
	c := &o.cr
	c.on = o.cfg.Flow == FlowCredit && o.g.size > 1 && o.g.total > 0
	c.all = o.g.total
	// Children may leave the barrier, and grant, before we do.
	c.child = make([]uint64, len(o.tree.children))
	if !c.on {
		return
	}
	c.joined = true
	c.own = o.cfg.Pool.join(o.g.total)
	c.quantum = o.cfg.Pool.quantum()
	c.all = c.own
}

// barrierGrant takes over the least initial grant, which the barrier found.
func (o *Collective) barrierGrant(now step.Time, grant uint64) {
	c := &o.cr
	if !c.on {
		return
	}
	c.all, c.upTold, c.movedAt = grant, grant, now
	for i := range c.child {
		c.child[i] = max(c.child[i], grant)
	}
}

// credit cuts a batch of n chunks to what may be sent now.
func (o *Collective) credit(n uint32) uint32 {
	if !o.cr.on || o.cr.all >= o.g.total {
		return n
	}
	i := o.g.index[o.rank]
	k, j := int(o.g.chains.of[i]), o.g.chains.before[i]+uint64(o.snd.handed)
	for n > 0 && o.g.chains.position(k, j+uint64(n)-1) >= o.cr.all {
		n /= 2
	}
	return n
}

// consumedMore grants more when enough was consumed since we last looked.
func (o *Collective) consumedMore(now step.Time, out []step.Action) []step.Action {
	c := &o.cr
	if !c.on || !c.joined {
		return out
	}
	consumed := uint64(o.snd.done)
	for i := range o.arrived {
		consumed += o.arrived[i].consumed
	}
	// Look again when a quantum was consumed, or at once if less than that is
	// left for senders to send: an operation may hold very little.
	if consumed == c.consumed || (consumed-c.consumed < c.quantum && consumed+c.quantum <= c.own && consumed < o.g.total) {
		return out
	}
	// A datagram may prove more to have been sent than we granted only if we
	// granted less than the least, which cannot be; but do not go below zero.
	used := min(consumed, c.own) - min(c.consumed, c.own)
	o.cfg.Pool.giveBack(used)
	c.consumed = consumed
	if consumed >= o.g.total {
		o.leavePool()
		c.own = o.g.total
	} else {
		held := c.own - min(consumed, c.own)
		// What was proved to be sent beyond what we granted was never lent.
		c.own = max(c.own, consumed) + o.cfg.Pool.more(held, o.g.total-consumed)
	}
	return o.reduceGrants(now, out)
}

// leavePool returns what the Collective still holds.
func (o *Collective) leavePool() {
	c := &o.cr
	if c.joined {
		c.joined, c.noted = false, false
		o.cfg.Pool.giveBack(c.own - min(c.consumed, c.own))
		o.cfg.Pool.ops--
	}
}

// reduceGrants passes the least grant of our subtree up, or, at the top, down.
func (o *Collective) reduceGrants(now step.Time, out []step.Action) []step.Action {
	c := &o.cr
	if o.phase < step.Multicast || o.phase >= step.Closed {
		return out
	}
	least := min(c.own, o.g.total)
	for _, g := range c.child {
		least = min(least, g)
	}
	if least <= c.upTold || (least-c.upTold < c.quantum && c.consumed+c.quantum <= c.upTold && least < o.g.total) {
		return out
	}
	c.upTold = least
	if o.tree.parent >= 0 {
		return o.send(out, o.tree.parent, wire.Msg{Kind: wire.MsgGrantUp, Grant: least})
	}
	return o.granted(now, least, out)
}

// granted takes the least grant of all and passes it down.
func (o *Collective) granted(now step.Time, grant uint64, out []step.Action) []step.Action {
	c := &o.cr
	if !c.on || grant <= c.all {
		return out
	}
	c.all, c.movedAt = min(grant, o.g.total), now
	for _, child := range o.tree.children {
		out = o.send(out, child, wire.Msg{Kind: wire.MsgGrant, Grant: c.all})
	}
	return o.pump(now, out)
}

// markAt is when a sender whom credit does not reach announces what it has
// sent: chunks lost at the end of a block are otherwise never counted as
// consumed.
func (o *Collective) markAt() step.Time {
	c, s := &o.cr, &o.snd
	if !c.on || c.all >= o.g.total || s.total == 0 || s.done != s.handed {
		return step.Never
	}
	if c.marked && c.markSent == s.done && c.markPred == s.predSent {
		return step.Never // they know, and the path is reliable
	}
	since := max(c.movedAt, o.barrierAt)
	switch {
	case c.needed && s.active:
		return since
	case s.blocked || s.finished() && s.succ < 0:
		return since + 2*o.cfg.Est.Alpha()
	}
	return step.Never
}

func (o *Collective) mark(out []step.Action) []step.Action {
	o.cr.needed, o.cr.marked, o.cr.markSent, o.cr.markPred = true, true, o.snd.done, o.snd.predSent
	m := wire.Msg{Kind: wire.MsgMark, Rank: uint32(o.rank), Flag: o.snd.predSent, Counts: append([]uint32(nil), o.snd.cursor...)}
	return o.spread(m, -1, out)
}

// spread sends along the control tree, away from where a message came from.
func (o *Collective) spread(m wire.Msg, from int, out []step.Action) []step.Action {
	if o.tree.parent >= 0 && o.tree.parent != from {
		out = o.send(out, o.tree.parent, m)
	}
	for _, c := range o.tree.children {
		if c != from {
			out = o.send(out, c, m)
		}
	}
	return out
}

// marked learns from such an announcement.
func (o *Collective) marked(now step.Time, from int, m *wire.Msg, out []step.Action) []step.Action {
	out = o.spread(*m, from, out)
	o.cr.needed = true
	if int(m.Rank) >= o.g.size || o.g.index[m.Rank] < 0 || len(m.Counts) != o.g.subs {
		return out
	}
	i := int(o.g.index[m.Rank])
	for sub := range o.arrived {
		o.arrived[sub].note(i, min(m.Counts[sub], o.g.base[sub][i+1]-o.g.base[sub][i]))
	}
	o.noteChain(now, i, m.Flag)
	return out
}

// noteChain learns on the reliable path that sender i has had its turn, and
// whether all before it in the chain have finished.
func (o *Collective) noteChain(now step.Time, i int, finished bool) {
	c := &o.g.chains
	last := int(c.pos[i]) - 1
	if finished {
		last++
	}
	for _, m := range c.members[c.of[i]][:max(last, 0)] {
		for sub := range o.arrived {
			o.arrived[sub].finished(m)
		}
	}
	o.noted(now)
}
