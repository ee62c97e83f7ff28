package node

import (
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

type laneKind uint8

const (
	laneCall   laneKind = iota // calls to make on one communicator, in order
	laneMsg                    // reliable messages from one rank, in order
	laneGram                   // datagrams
	laneNIC                    // chunks to multicast
	laneSent                   // chunks that have left, to be told
	laneOpen                   // rounds whose buffers are being prepared
	laneReport                 // reports of receive workers
	laneClaim                  // reads to be claimed
	laneRead                   // reads to carry out
	laneQuiet                  // failed operations that the fabric has let go of
	laneDrain                  // closed operations whose datagrams are gone
)

var laneNames = [...]string{"calls", "messages", "datagrams", "multicasts", "sent chunks", "openings", "reports", "claims", "reads", "quiesced operations", "drained operations"}

func (k laneKind) String() string { return laneNames[k] }

// A lane is a queue of one kind of things that can happen at a rank.
type lane struct {
	kind  laneKind
	at    *host
	from  int
	items []item
	index int  // in ready, if there are items
	held  bool // nothing of it happens, until the test says so
}

type item struct {
	serial  uint64
	since   step.Time
	job     *job
	msg     []byte
	eof     bool // the connection is gone
	to      int
	comm    uint32
	seq     uint64
	sub     int
	psn, n  uint32
	ranges  []wire.Range
	report  *mcast.Report
	imm     uint32
	payload []byte
}

func (it *item) op() opKey { return opKey{it.comm, it.seq} }

// patience is how long something waits at most before it comes first.
const patience = 200 * us

func (c *cluster) push(l *lane, it item) {
	if l.at.dead {
		return
	}
	c.serial++
	it.serial, it.since = c.serial, c.now
	if len(l.items) == 0 {
		l.index = len(c.ready)
		c.ready = append(c.ready, l)
	}
	l.items = append(l.items, it)
	switch l.kind {
	case laneGram:
		l.at.flying[it.op()]++
	case laneCall:
		c.open++
	}
}

// take removes the i-th item of a lane.
func (c *cluster) take(l *lane, i int) item {
	it := l.items[i]
	copy(l.items[i:], l.items[i+1:])
	if l.items = l.items[:len(l.items)-1]; len(l.items) == 0 {
		last := len(c.ready) - 1
		c.ready[l.index] = c.ready[last]
		c.ready[l.index].index = l.index
		c.ready = c.ready[:last]
	}
	switch l.kind {
	case laneGram:
		l.at.flying[it.op()]--
	case laneCall:
		c.open--
	}
	return it
}

func (c *cluster) clear(l *lane) {
	for len(l.items) > 0 {
		c.take(l, len(l.items)-1)
	}
}

// pick chooses what happens next, nil for nothing.
func (c *cluster) pick() *lane {
	var oldest, one *lane
	n := 0
	for _, l := range c.ready {
		if l.held || l.at.stopped || (l.kind == laneDrain && !c.drained(l)) {
			continue
		}
		if oldest == nil || l.items[0].serial < oldest.items[0].serial {
			oldest = l
		}
		if n++; c.rng != nil && c.rng.IntN(n) == 0 {
			one = l
		}
	}
	if one == nil || oldest.items[0].since+patience < c.now {
		return oldest
	}
	return one
}

// drained reports whether the next operation in a drain lane has no datagram on
// its way to that rank any more.
func (c *cluster) drained(l *lane) bool {
	key := l.items[0].op()
	for _, k := range c.kept {
		if k.to == l.at.id && k.it.op() == key {
			return false
		}
	}
	return l.at.flying[key] == 0
}

// happen lets the first thing of a lane happen, or any of the datagrams.
func (c *cluster) happen(l *lane) {
	h := l.at
	switch l.kind {
	case laneCall:
		h.start(c.take(l, 0).job)
		return
	case laneMsg:
		h.message(l.from, c.take(l, 0))
	case laneGram:
		i := 0
		if c.rng != nil {
			i = c.rng.IntN(len(l.items))
		}
		it := c.take(l, i)
		if c.rng != nil && c.rng.Float64() < c.duplicate {
			c.push(l, it)
		}
		h.datagram(&it)
	case laneNIC:
		h.leave(c.take(l, 0))
	case laneSent:
		it := c.take(l, 0)
		h.node.Sent(c.now, it.comm, it.seq, it.n)
	case laneOpen:
		it := c.take(l, 0)
		if r := h.ops[it.op()]; r.state == isOpen { // it may have failed meanwhile
			r.took, r.opened = c.now, true
		}
		h.node.Opened(c.now, it.comm, it.seq, false)
	case laneReport:
		h.node.Received(c.now, c.take(l, 0).report, false)
	case laneClaim:
		h.claim(c.take(l, 0))
	case laneRead:
		h.read(c.take(l, 0))
	case laneQuiet:
		it := c.take(l, 0)
		h.ops[it.op()].state = quiet
		h.node.Quiesced(it.comm, it.seq)
	case laneDrain:
		it := c.take(l, 0)
		h.ops[it.op()].drained = true
		h.undrained[it.comm]--
		h.node.Drained(c.now, it.comm, it.seq)
	}
	h.act()
}

// release lets kept datagrams go on, all or those that a test picks.
func (c *cluster) release(which func(*kept) bool) {
	var rest []kept
	for i := range c.kept {
		if k := &c.kept[i]; which == nil || which(k) {
			c.push(&c.hosts[k.to].grams, k.it)
		} else {
			rest = append(rest, *k)
		}
	}
	c.kept = rest
}
