package mcast

import (
	"fmt"
	"slices"

	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Credit keeps senders from overrunning a slow receiver. All chunks of a Collective have a place in
// one order, the merged order of its chains (chains.position). A rank grants the places that it has
// consumed plus the room that it lends to the Collective. A chunk is consumed when it is placed, or
// when it was sent and is no longer on its way to the rank. The control tree computes the minimum of
// all ranks' grants and distributes it. A sender sends only chunks whose place is below that minimum.
//
// Senders never overrun a receiver: they send at most `grant` places in total. Hence at most grant
// minus consumed chunks are on their way to any rank, which is no more than the rank lent. There are
// two exceptions. A pool owes each operation one place, so it lends more than it has when more
// operations are in flight than it has room for. Reordered and duplicated datagrams are not
// accounted for.
//
// Senders never get stuck: assume that every rank has consumed everything sent so far, T chunks. The
// first unsent place p is at most T. Every rank's grant is above T, because each rank lends at least
// one place. Hence p may be sent. Its sender is active, because places grow along each chain.
//
// Lost chunks at the end of a block do not break this argument. A datagram proves that all earlier
// chunks were sent. A sender that is stalled, or is the last of its chain, announces what it has
// sent in a reliable message (MsgMark). This message can overtake datagrams that are in the network
// or in the receive queue. Chunks that it covers therefore count as consumed only when the queue
// must be past them. That is the case after the workers have taken as many datagrams as the queue
// holds. It is also the case when they have taken none for as long as all granted chunks take to
// arrive.
//
// A stalled sender first waits for the grant to arrive. Once any sender has needed an announcement,
// chunks are being lost. From then on every sender announces what it sends as soon as it has left,
// so that no sender has to stall first.

// Flow is a flow-control policy.
type Flow uint8

// Policies.
const (
	// FlowNone sends as fast as the link allows. It suits lossless fabrics, as in the paper.
	FlowNone Flow = iota
	// FlowCredit limits senders to the room of the slowest receiver.
	FlowCredit
)

var flowNames = []string{"none", "credit"}

func (f Flow) String() string { return flowNames[f] }

// ParseFlow parses the result of String.
func ParseFlow(s string) (Flow, error) {
	if f := slices.Index(flowNames, s); f >= 0 {
		return Flow(f), nil
	}
	return 0, fmt.Errorf("unknown flow control %q: valid are none, credit", s)
}

// A Pool is the room of a process for datagrams that are not yet consumed. Operations of all its
// communicators share it. A process has one pool for operations that it receives itself, and one for
// operations that the kernel receives.
type Pool struct {
	size uint64 // places
	lent uint64 // in units of Charge
	ops  uint64

	taken   *place.Taken // count of datagrams that the workers took from the receive queues
	takenAt step.Time    // time of the last report of such datagrams
}

// A Charge is the room that a chunk of an operation takes, in parts of a place. It is more than one place
// for operations whose chunks also reach processes that lend them nothing.
type Charge uint64

// onePlace is the Charge of a chunk that takes one place.
const onePlace Charge = 256

// ChargeOf returns the Charge of num/den places, rounded up.
func ChargeOf(num, den int) Charge {
	return Charge((num*int(onePlace) + den - 1) / den)
}

// Took records a report of datagrams that a worker took from a receive queue.
func (p *Pool) Took(now step.Time) { p.takenAt = now }

// NewPool returns a pool with room for size datagrams. The receive workers share taken; it is nil if
// there are no workers.
func NewPool(size uint64, taken *place.Taken) *Pool {
	if taken == nil {
		taken = &place.Taken{}
	}
	return &Pool{size: max(1, size), taken: taken}
}

// Lent returns the places that operations hold.
func (p *Pool) Lent() uint64 { return (p.lent + uint64(onePlace) - 1) / uint64(onePlace) }

// free returns the room that no operation holds, in units of Charge.
func (p *Pool) free() uint64 { return p.size*uint64(onePlace) - min(p.lent, p.size*uint64(onePlace)) }

// join lends room to a new operation of total chunks. It lends at most an eighth of the free room, or
// half of it where there is plenty. Later operations therefore find room as well. An operation gets the
// rest of its share when it consumes. It always gets at least one place: otherwise an operation that
// cannot finish before another one could hold all the room and wait for ever.
func (p *Pool) join(total uint64, each Charge) uint64 {
	p.ops++
	free := p.free()
	// Where there is plenty, the first operation gets enough to start at full speed.
	start := max(free/8, min(free/2, free-min(free, plenty*uint64(onePlace))))
	n := max(1, min(total, start/uint64(each)))
	p.lent += n * uint64(each)
	return n
}

// plenty is a number of datagrams. Room beyond it is worth lending and reporting in large steps.
const plenty = 256

// quantum is the smallest change worth a message. Where room is scarce it is small, so that no rank
// waits for the message. Where there is plenty it is up to a quarter of the room.
func (p *Pool) quantum(each Charge) uint64 {
	return max(1, max(p.size/16, (p.size-min(p.size, plenty))/4)*uint64(onePlace)/uint64(each))
}

// extend lends further places to an operation that holds held places and can use limit places.
func (p *Pool) extend(held, limit uint64, each Charge) uint64 {
	share := max(1, p.size*uint64(onePlace)/p.ops/uint64(each))
	if held >= min(share, limit) {
		return 0
	}
	n := min(share-held, limit-held, p.free()/uint64(each))
	if n == 0 && held == 0 {
		n = 1
	}
	p.lent += n * uint64(each)
	return n
}

func (p *Pool) release(n uint64, each Charge) { p.lent -= n * uint64(each) }

// grants is the credit state of one Collective.
type grants struct {
	on         bool
	joined     bool      // whether the pool counts this Collective
	own        uint64    // places that this rank grants
	consumed   uint64    // consumed chunks at the last update
	child      []uint64  // grants of the children's subtrees
	reportedUp uint64    // last grant of the subtree reported to the parent
	all        uint64    // minimum over all ranks: places below it may be sent
	quantum    uint64    // smallest change worth a message
	movedAt    step.Time // time when all last grew
	needed     bool      // whether any sender has had to announce what it sent
	marked     bool      // whether this rank has announced what it sent
	markSent   uint32    // number of chunks in the last announcement
	markPred   bool      // predSent in the last announcement

	announced      bool      // whether an announcement covers chunks that may not be consumed
	announcedAt    step.Time // time of that announcement
	announcedTaken uint64    // pool's taken count at that time
}

// recordAnnounced records that a reliable message has reported chunks as sent.
func (o *Collective) recordAnnounced(now step.Time) {
	o.recordNews()
	if c := &o.cr; c.joined {
		c.announced, c.announcedAt, c.announcedTaken = true, now, o.cfg.Pool.taken.Count()
	}
}

// consumeAt returns the time at which announced chunks count as consumed.
func (o *Collective) consumeAt() step.Time {
	c, p := &o.cr, o.cfg.Pool
	switch {
	case !c.announced:
		return step.Never
	case p.taken.Count()-c.announcedTaken >= p.size:
		return c.announcedAt // the queue is past the announced chunks, whichever operation the datagrams belong to
	}
	under := c.own - min(c.own, c.consumed) // granted chunks that are not known to have arrived
	quiet := max(c.announcedAt, p.takenAt) + o.cfg.Est.Transit(o.wireSize(under))
	// Another operation may take a few datagrams all the time while this one holds the room. All
	// chunks on their way to this rank occupy lent room, so they arrive in the time that much takes.
	return min(quiet, c.announcedAt+2*o.cfg.Est.Transit(o.wireSize(p.Lent())))
}

// consumeAnnounced counts announced chunks as consumed. Only handleTimer calls it: before each
// timer, the driver reports whether datagrams are waiting (Queued).
func (o *Collective) consumeAnnounced() {
	o.cr.announced = false
	for i := range o.arrived {
		o.arrived[i].consumeSent()
	}
}

// joinPool sets this rank's initial grant.
func (o *Collective) joinPool() {
	c := &o.cr
	c.on = o.cfg.Flow == FlowCredit && o.g.size > 1 && o.g.total > 0
	c.all = o.g.total
	// A child may leave the barrier, and grant, before this rank does.
	c.child = make([]uint64, len(o.tree.children))
	if !c.on {
		return
	}
	c.joined = true
	c.own = o.cfg.Pool.join(o.g.total, o.cfg.Charge)
	c.quantum = o.cfg.Pool.quantum(o.cfg.Charge)
	c.all = c.own
}

// adoptBarrierGrant adopts the minimum initial grant, which the barrier computed.
func (o *Collective) adoptBarrierGrant(now step.Time, grant uint64) {
	c := &o.cr
	if !c.on {
		return
	}
	c.all, c.reportedUp, c.movedAt = grant, grant, now
	for i := range c.child {
		c.child[i] = max(c.child[i], grant)
	}
}

// clampToCredit reduces a batch of n chunks to what may be sent now.
func (o *Collective) clampToCredit(n uint32) uint32 {
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

// updateGrant raises this rank's grant when it has consumed enough since the last update.
func (o *Collective) updateGrant(now step.Time, out []step.Action) []step.Action {
	c := &o.cr
	if !c.joined {
		return out
	}
	consumed := uint64(o.snd.done) + o.count.consumed
	// Update when a quantum has been consumed. Update at once if senders have less than a quantum
	// left, because an operation may hold very little room.
	if consumed == c.consumed ||
		(consumed-c.consumed < c.quantum && consumed+c.quantum <= c.own && consumed < o.g.total) {
		return out
	}
	// A datagram can prove more chunks sent than this rank granted only if the grant is below
	// the minimum, which is impossible for correct peers. Do not underflow in any case.
	used := min(consumed, c.own) - min(c.consumed, c.own)
	o.cfg.Pool.release(used, o.cfg.Charge)
	c.consumed = consumed
	if consumed >= o.g.total {
		o.leavePool()
		c.own = o.g.total
	} else {
		held := c.own - min(consumed, c.own)
		// The pool never lent chunks that were proved sent beyond the grant.
		c.own = max(c.own, consumed) + o.cfg.Pool.extend(held, o.g.total-consumed, o.cfg.Charge)
	}
	return o.reduceGrants(now, out)
}

// leavePool returns the room that the Collective still holds.
func (o *Collective) leavePool() {
	c := &o.cr
	if c.joined {
		c.joined, c.announced = false, false
		o.cfg.Pool.release(c.own-min(c.consumed, c.own), o.cfg.Charge)
		o.cfg.Pool.ops--
	}
}

// reduceGrants passes the minimum grant of this rank's subtree up, or down if this rank is the top.
func (o *Collective) reduceGrants(now step.Time, out []step.Action) []step.Action {
	c := &o.cr
	if !o.running() {
		return out
	}
	lowest := min(c.own, o.g.total)
	for _, grant := range c.child {
		lowest = min(lowest, grant)
	}
	if lowest <= c.reportedUp ||
		(lowest-c.reportedUp < c.quantum && c.consumed+c.quantum <= c.reportedUp && lowest < o.g.total) {
		return out
	}
	c.reportedUp = lowest
	if o.tree.parent >= 0 {
		return o.send(out, o.tree.parent, wire.Msg{Kind: wire.MsgGrantUp, Grant: lowest})
	}
	return o.acceptGrant(now, lowest, out)
}

// acceptGrant adopts the minimum grant of all ranks and passes it down.
func (o *Collective) acceptGrant(now step.Time, grant uint64, out []step.Action) []step.Action {
	c := &o.cr
	if !c.on || grant <= c.all {
		return out
	}
	c.all, c.movedAt = min(grant, o.g.total), now
	return o.pump(now, o.forward(wire.Msg{Kind: wire.MsgGrant, Grant: c.all}, o.tree.parent, out))
}

// markAt returns the time at which a sender without credit announces what it has sent. Without the
// announcement, chunks lost at the end of a block would never count as consumed.
func (o *Collective) markAt() step.Time {
	c, s := &o.cr, &o.snd
	if !c.on || c.all >= o.g.total || s.total == 0 || s.done != s.handed {
		return step.Never
	}
	if c.marked && c.markSent == s.done && c.markPred == s.predSent {
		return step.Never // the other ranks have this announcement: the path is reliable
	}
	switch {
	case c.needed && s.active:
		return c.movedAt
	case s.blocked || s.finished() && s.succ < 0:
		return c.movedAt + 2*o.cfg.Est.Alpha()
	}
	return step.Never
}

func (o *Collective) sendMark(out []step.Action) []step.Action {
	o.cr.needed, o.cr.marked, o.cr.markSent, o.cr.markPred = true, true, o.snd.done, o.snd.predSent
	m := wire.Msg{
		Kind: wire.MsgMark, Rank: uint32(o.rank), Flag: o.snd.predSent, Counts: slices.Clone(o.snd.cursor),
	}
	return o.forward(m, -1, out)
}

// forward sends a message along the control tree, except to the neighbour that it came from.
func (o *Collective) forward(m wire.Msg, from int, out []step.Action) []step.Action {
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

// handleMark learns from another sender's announcement.
func (o *Collective) handleMark(now step.Time, from int, m *wire.Msg, out []step.Action) []step.Action {
	out = o.forward(*m, from, out)
	o.cr.needed = true
	if int(m.Rank) >= o.g.size || o.g.index[m.Rank] < 0 || len(m.Counts) != o.g.subs {
		return out
	}
	i := int(o.g.index[m.Rank])
	j := int(o.g.place[i])
	for sub, n := range m.Counts {
		t := o.g.stream(i, sub)
		o.arrived[t].recordSent(j, min(n, o.g.blockSize(t, j)))
	}
	o.recordChain(now, i, m.Flag)
	return out
}

// recordChain records, from a reliable message, that sender i is active. If finished is set, all
// ranks before i in its chain have finished; otherwise all but its direct predecessor have.
func (o *Collective) recordChain(now step.Time, i int, finished bool) {
	c := &o.g.chains
	last := int(c.pos[i]) - 1
	if finished {
		last++
	}
	for _, m := range c.members[c.of[i]][:max(last, 0)] {
		for sub := range o.g.subs {
			o.arrived[o.g.stream(m, sub)].recordFinished(int(o.g.place[m]))
		}
	}
	o.recordAnnounced(now)
}
