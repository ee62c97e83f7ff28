package node

import (
	"math/rand/v2"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

const (
	us = step.Microsecond
	ms = step.Millisecond

	tick    = us      // duration of an event
	forever = 1 << 40 // more events than any run has
)

// A cluster is some nodes and the fabric between them. Without a random source, the event that has
// waited longest happens next. The cluster checks that the nodes keep their side of the contract
// (contract_test.go).
type cluster struct {
	*clustertest.Cluster
	cfg     Config
	random  bool
	hosts   []*host
	tree    *inc.Tree
	sums    []*aggregator // of the tree
	comms   map[uint32][]int
	jobs    []*job // by request
	ends    []end  // in the order in which calls ended, over all ranks
	hurt    bool   // a process died or a communicator broke: reads and pieces may be refused
	fate    func(to int, d *datagram) clustertest.Fate
	mail    []*parcel // in the order in which they were made
	parcels uint64    // number of them
}

type end struct {
	rank int
	req  uint64
}

// testConfig suits most tests. The cluster fills in rank and size.
func testConfig() Config {
	layout, err := wire.NewLayout(0)
	if err != nil {
		panic(err)
	}
	return Config{
		Timeout: 10 * ms, Batch: 4, Layout: layout, InFlight: 4, Room: 64,
		Limits:   mcast.Limits{Alpha: 200 * us, MinAlpha: 50 * us, MaxAlpha: 50 * ms},
		Patience: inc.Limits{Tries: 3, Silent: 20 * ms},
	}
}

// quietConfig has no heartbeats: every event is caused by the test.
func quietConfig() Config {
	cfg := testConfig()
	cfg.Timeout = 0
	return cfg
}

// patient keeps ranks from taking a kept datagram for lost.
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

func newCluster(t clustertest.TB, size int, cfg Config) *cluster {
	c := &cluster{
		Cluster: clustertest.New(t, 0), cfg: cfg, comms: map[uint32][]int{},
	}
	c.Now, c.MaxSpins = step.Second, 2
	c.Order, c.Delay = clustertest.Oldest, func() step.Time { return tick }
	for i := range size {
		cfg.Rank, cfg.Size = i, size
		cfg.Taken = &place.Taken{}
		c.hosts = append(c.hosts, newHost(c, New(c.Now, cfg)))
	}
	c.addAggregators(size)
	return c
}

// randomly makes the next event random. None waits for much longer than the others.
func (c *cluster) randomly(seed uint64, faults clustertest.Faults) {
	c.Seed, c.Rand = seed, rand.New(rand.NewPCG(seed, 0))
	c.random, c.Order = true, clustertest.Fair(200*us)
	faults.Reorder = 1
	for _, h := range c.hosts {
		h.grams.Faults = faults
		h.results.Faults = faults
	}
	for _, a := range c.sums {
		a.arrivals.Faults = faults
	}
}

// world is a cluster with one communicator, number 0, of all ranks.
func world(t clustertest.TB, size int, cfg Config) *cluster {
	c := newCluster(t, size, cfg)
	c.comm(0, upTo(size)...)
	return c
}

// planWorld is a world for point-to-point calls. Any event may happen next.
func planWorld(t clustertest.TB, size int, seed uint64, cfg Config) *cluster {
	c := world(t, size, cfg)
	c.randomly(seed, clustertest.Faults{})
	c.Order = clustertest.Random
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
	c.T.Helper()
	c.comms[id] = members
	for _, m := range members {
		if err := c.hosts[m].node.AddComm(id, members); err != nil {
			c.Failf("communicator %d on rank %d: %v", id, m, err)
		}
		c.hosts[m].act()
	}
}

// kill stops processes for good. What they have sent may still arrive. With reset, the ranks that have
// a multicast connection to them notice after that; otherwise no rank does.
func (c *cluster) kill(reset bool, ranks ...int) {
	for _, r := range ranks {
		var peers []int
		if reset {
			peers = mcast.AppendPeers(nil, r, len(c.hosts))
		}
		c.killSeenBy(r, peers)
	}
}

// killSeenBy stops a process for good. The given peers notice after they got everything that it sent.
func (c *cluster) killSeenBy(rank int, peers []int) {
	c.hurt = true
	c.Kill(c.hosts[rank].Rank)
	for _, p := range peers {
		if p != rank {
			c.hosts[p].inbox[rank].Push(nil)
		}
	}
}

// freeze stops a process for a while: it handles nothing and looks at no clock.
func (c *cluster) freeze(rank int, d step.Time) {
	h := c.hosts[rank]
	h.Stopped, h.late = true, h.late || d >= c.cfg.Timeout
	c.RunFor(d)
	h.Stopped = false
}

// run lets events happen until none is pending. No timer fires.
func (c *cluster) run() { c.Drain(forever) }

// release lets kept datagrams go on: all, or those that a test picks.
func (c *cluster) release(which func(datagram) bool) {
	for _, h := range c.hosts {
		h.grams.Release(which)
	}
}
