package node

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// tb is what *testing.T, *testing.B and *rapid.T have in common.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

const (
	us = step.Microsecond
	ms = step.Millisecond

	tick = us // each thing that happens takes so long
)

// A cluster is some nodes and the fabric between them. It has an explicit clock
// and no model of a network: what has waited longest happens next or, with a
// random source, anything that the fabric's contract allows. It checks that the
// nodes keep their side of the contract (contract_test.go).
type cluster struct {
	t      tb
	cfg    Config
	now    step.Time
	rng    *rand.Rand // nil: what has waited longest happens next
	hosts  []*host
	comms  map[uint32][]int
	jobs   []*job  // by request
	ready  []*lane // those with something pending
	serial uint64
	open   int   // calls on living ranks that are to be made or have not ended
	ends   []end // in the order in which calls ended, over all ranks
	hurt   bool  // a process died or a communicator broke: reads may be refused

	loss, duplicate float64
	fate            func(to int, d *item) fate // of one receiver's copy of a datagram; nil: sent on
	kept            []kept
}

// fate is what becomes of a datagram.
type fate uint8

const (
	goesOn fate = iota
	dropped
	isKept // until the test says more
)

type kept struct {
	to int
	it item
}

type end struct {
	rank int
	req  uint64
}

// testConfig is what most tests want: rank and size are filled in.
func testConfig() Config {
	layout, err := wire.NewLayout(0)
	if err != nil {
		panic(err)
	}
	return Config{
		Timeout: 10 * ms, Batch: 4, Layout: layout, InFlight: 4, Room: 64,
		Limits: mcast.Limits{Alpha: 200 * us, MinAlpha: 50 * us, MaxAlpha: 50 * ms},
	}
}

// patient makes nobody take a held datagram for lost while a test lasts.
func patient(cfg Config) Config {
	cfg.Limits = mcast.Limits{Alpha: 1000 * step.Second, MinAlpha: 1000 * step.Second}
	return cfg
}

// psnBits sets the layout of immediates.
func psnBits(cfg Config, bits int) Config {
	layout, err := wire.NewLayout(bits)
	if err != nil {
		panic(err)
	}
	cfg.Layout = layout
	return cfg
}

func newCluster(t tb, size int, cfg Config) *cluster {
	c := &cluster{t: t, cfg: cfg, now: step.Second, comms: map[uint32][]int{}}
	for i := range size {
		cfg.Rank, cfg.Size = i, size
		cfg.Taken = &place.Taken{}
		c.hosts = append(c.hosts, newHost(c, New(c.now, cfg)))
	}
	return c
}

// world is a cluster with one communicator, number 0, of everybody.
func world(t tb, size int, cfg Config) *cluster {
	c := newCluster(t, size, cfg)
	c.comm(0, upTo(size)...)
	return c
}

func upTo(n int) []int {
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i
	}
	return ranks
}

// comm adds a communicator on all its members.
func (c *cluster) comm(id uint32, members ...int) {
	c.t.Helper()
	c.comms[id] = members
	for _, m := range members {
		if err := c.hosts[m].node.AddComm(id, members); err != nil {
			c.t.Fatalf("communicator %d on rank %d: %v", id, m, err)
		}
		c.hosts[m].act()
	}
}

// kill stops a process for good. What it has sent may still arrive. With reset,
// those that have a connection to it notice after that; otherwise nobody does.
func (c *cluster) kill(reset bool, ranks ...int) {
	c.hurt = true
	for _, r := range ranks {
		h := c.hosts[r]
		h.dead = true
		for _, shares := range h.shares {
			c.open -= len(shares)
		}
		for _, l := range h.lanes() {
			c.clear(l)
		}
		if !reset {
			continue
		}
		for _, p := range mcast.AppendPeers(nil, r, len(c.hosts)) {
			if !c.hosts[p].dead {
				c.push(c.hosts[p].inbox[r], item{eof: true})
			}
		}
	}
}

// freeze stops a process for a while: it handles nothing and looks at no clock.
func (c *cluster) freeze(rank int, d step.Time) {
	c.t.Helper()
	h := c.hosts[rank]
	h.stopped, h.late = true, h.late || d >= c.cfg.Timeout
	c.runFor(d)
	h.stopped = false
}

// until lets things happen until something is so.
func (c *cluster) until(what string, so func() bool) {
	c.t.Helper()
	const most = 2_000_000
	for range most {
		if so() {
			return
		}
		if !c.step() {
			c.t.Fatalf("stuck before %s: nothing is pending and nobody has a timer\n%s", what, c.dump())
		}
	}
	c.t.Fatalf("%s: not after %d events\n%s", what, most, c.dump())
}

// runFor lets things happen for some time.
func (c *cluster) runFor(d step.Time) {
	c.t.Helper()
	for end := c.now + d; c.now < end; {
		if !c.stepBefore(end) {
			c.now = end
		}
	}
}

func (c *cluster) step() bool { return c.stepBefore(step.Never) }

// stepBefore lets the next thing happen, if it is due before the given time.
func (c *cluster) stepBefore(end step.Time) bool {
	next := step.Never
	for _, h := range c.hosts {
		if h.dead || h.stopped {
			continue
		}
		if h.timerAt <= c.now {
			h.timer()
			return true
		}
		next = min(next, h.timerAt)
	}
	if l := c.pick(); l != nil {
		c.now += tick
		c.happen(l)
		return true
	}
	if next >= end {
		return false
	}
	c.now = next
	return true
}

// dump describes where everybody is, for a failure's sake.
func (c *cluster) dump() string {
	var b strings.Builder
	for _, h := range c.hosts {
		fmt.Fprintf(&b, "rank %d: dead %v, stopped %v, lost %v, at %d, timer %d\n", h.id, h.dead, h.stopped, h.lost, c.now, h.timerAt)
		for _, co := range h.node.order {
			for _, k := range co.calls {
				fmt.Fprintf(&b, "  communicator %d call %d, round %d of %d, running %v, failed %v\n", co.id, k.seq, k.round, len(k.plan), k.running, k.failed)
			}
			for _, st := range co.live {
				fmt.Fprintf(&b, "  communicator %d operation %d: %v, waits for %d, missing %s\n", co.id, st.seq, st.op.Phase(), st.op.WaitingOn(), st.op.Missing(nil))
			}
		}
	}
	for _, l := range c.ready {
		fmt.Fprintf(&b, "pending at rank %d: %d of %v, held %v\n", l.at.id, len(l.items), l.kind, l.held)
	}
	return b.String()
}
