package mcast

import (
	"fmt"
	"slices"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// clusterToken is the token of all datagrams.
const clusterToken = 0xa11ca57

// world is what the collectives of a test share: the clock, the random source and the state that a
// process keeps between collectives.
type world struct {
	*clustertest.Cluster
	hosts    []host
	layout   wire.Layout
	tick     step.Time // maximum time between two events
	slow     int       // rank that handles few events; -1: none
	deaf     bool      // whether it is slow only to take datagrams
	lockstep bool      // whether reports and completions arrive at once, for scripts
	all      []*cluster
}

type host struct {
	est   *Estimator
	pool  *Pool
	taken *place.Taken
}

// A cluster is one collective on all its ranks.
type cluster struct {
	*clustertest.Reference
	w       *world
	g       *Geometry
	send    [][]byte // by rank: its block
	recv    [][]byte // by rank
	ranks   []*member
	state   [][]chunkState // [subgroup][PSN]
	peers   [][]int        // by rank: ranks that it may send messages to
	reads   [][]uint32     // [subgroup][PSN]: reads from the owner itself
	room    int            // when set: limit of the datagrams that wait at a rank
	log     func(rank int, a *step.Action)
	digests []uint64 // by rank: digest of its memory
	accused [][2]int // rank that found a difference, rank that differs
}

// network is what happens to datagrams. Each receiver's copy has its own fate.
type network struct {
	clustertest.Faults
	drop func(to, sub int, psn uint32) bool // when set, replaces Loss
}

// chunkState is how far a chunk is on its sender.
type chunkState uint8

const (
	unsent chunkState = iota
	handed            // to the fabric
	left              // the send buffer
)

// chunkFlags is what the driver of a receiver knows about a chunk.
type chunkFlags uint8

const (
	placed   chunkFlags = 1 << iota
	reading             // claimed for a read
	wanted              // part of a read that is not claimed yet
	reported            // known to the Collective
	asked               // requested from the left neighbour
)

// member is one rank of a cluster: its Collective and the state of its driver.
type member struct {
	c                         *cluster
	at                        *clustertest.Rank
	rank                      int
	op                        *Collective
	started, complete, closed bool
	final                     bool       // whether the Final of the right neighbour was delivered
	mute                      bool       // whether its timers do not fire
	stepped                   bool       // since the last Check
	phase                     step.Phase // at the last Check
	chunks                    [][]chunkFlags
	missing                   int // chunks that are not placed
	unknown                   int // chunks that the Collective was not told of
	intakes                   []*Intake
	handed, told              uint32 // own chunks handed to the fabric, and reported as sent
	digestAsked               int
	queues
}

// queues are what can happen at a member.
type queues struct {
	start   *clustertest.Queue[struct{}]
	inbox   map[int]*clustertest.Queue[[]byte] // by sender
	grams   *clustertest.Queue[datagram]
	nic     *clustertest.Queue[datagram]
	sent    *clustertest.Queue[struct{}]
	reports *clustertest.Queue[subReport]
	claims  *clustertest.Queue[readRequest]
	fetch   *clustertest.Queue[readRequest]
	digest  *clustertest.Queue[uint64]
}

type datagram struct {
	sub     int
	psn     uint32
	last    bool // of its ActMulticast
	payload []byte
}

type subReport struct {
	sub int
	*Report
}

type readRequest struct {
	sub    int
	ranges []wire.Range
}

func newWorld(t clustertest.TB, seed uint64, size int, limits Limits, room uint64) *world {
	w := &world{Cluster: clustertest.New(t, seed), tick: 200, slow: -1, layout: mustLayout(t, 0)}
	w.Now, w.Timers = 1, clustertest.TimersSampled
	w.Delay = func() step.Time { return step.Time(w.Rand.Int64N(int64(w.tick) + 1)) }
	w.Before = w.keepUp
	w.Skip = func(q *clustertest.Pending) bool {
		return q.At.ID == w.slow && (!w.deaf || q.Kind == "datagram") && w.Rand.IntN(50) != 0
	}
	for range size {
		taken := &place.Taken{}
		w.hosts = append(w.hosts, host{NewEstimator(limits), NewPool(room, taken), taken})
	}
	return w
}

// calm makes timers wait until nothing else is pending: no cutoff passes before its time.
func (w *world) calm() { w.Timers = clustertest.TimersIdle }

// memory makes the buffers of a collective, which its rounds share.
func (w *world) memory(s Shape) *cluster {
	c := &cluster{w: w, Reference: &clustertest.Reference{
		Kind: wire.Allgather, Size: len(s.Counts), Counts: s.Counts, Seed: w.Rand.Uint64(),
	}}
	for r := range s.Counts {
		lo, hi := c.Block(r)
		recv := slices.Repeat([]byte{0xee}, int(c.Total()))
		send := c.Input(r)[lo:hi]
		copy(recv[lo:], send)
		c.send, c.recv = append(c.send, send), append(c.recv, recv)
	}
	return c
}

// open creates a round on all ranks. No rank has started it.
func (c *cluster) open(g *Geometry, net network, cfg Config) *cluster {
	round := *c
	c = &round
	c.g, c.ranks, c.state, c.peers, c.reads = g, nil, nil, nil, nil
	for sub := range g.Streams() {
		c.state = append(c.state, make([]chunkState, g.PSNs(sub)))
		c.reads = append(c.reads, make([]uint32, g.PSNs(sub)))
	}
	for r := range g.Size() {
		h := &c.w.hosts[r]
		cfg.Geometry, cfg.Rank, cfg.Est, cfg.Pool = g, r, h.est, h.pool
		m := &member{c: c, rank: r, op: New(cfg)}
		m.at = c.w.Add(r, m)
		for sub := range g.Streams() {
			chunks := make([]chunkFlags, g.PSNs(sub))
			psn, n := g.Block(sub, r)
			for i := range n {
				chunks[psn+i] = placed | reported
			}
			m.chunks = append(m.chunks, chunks)
			m.missing += len(chunks) - int(n)
			in := NewIntake(c.w.layout, uint32(1+c.w.Rand.IntN(8)), h.taken, func() *Report { return &Report{} })
			in.Open(clusterToken, m.op.arrived[sub].Placement)
			m.intakes = append(m.intakes, in)
		}
		m.unknown = m.missing
		m.makeQueues(net)
		m.start.Push(struct{}{})
		c.ranks = append(c.ranks, m)
		pred, succ := g.neighbours(r)
		c.peers = append(c.peers, append(AppendPeers(nil, r, g.Size()), pred, succ))
	}
	c.w.all = append(c.w.all, c)
	return c
}

// open makes a collective of one round on all ranks.
func (w *world) open(s Shape, net network, cfg Config) *cluster {
	return w.memory(s).open(oneRound(w.T, s), net, cfg)
}

func queueOf[E any](m *member, kind string, do func(E)) *clustertest.Queue[E] {
	return clustertest.NewQueue(m.c.w.Cluster, kind, m.at, m.rank, do)
}

func (m *member) makeQueues(net network) {
	m.queues = queues{
		start: queueOf(m, "start", func(struct{}) {
			m.started = true
			m.step(step.Event{Kind: step.EvStart})
		}),
		inbox:   map[int]*clustertest.Queue[[]byte]{},
		grams:   queueOf(m, "datagram", m.datagram),
		nic:     queueOf(m, "multicast", m.leave),
		sent:    queueOf(m, "sent", m.tellSent),
		reports: queueOf(m, "report", m.heard),
		claims:  queueOf(m, "claim", m.claim),
		fetch:   queueOf(m, "read", m.read),
		digest: queueOf(m, "digest", func(sum uint64) {
			m.step(step.Event{Kind: step.EvDigest, Digest: sum})
		}),
	}
	m.fetch.Faults.Reorder = 1
	m.grams.Faults = net.Faults
	if net.drop != nil {
		m.grams.Faults.Loss = 0
		m.grams.Fate = func(d datagram) clustertest.Fate {
			if net.drop(m.rank, d.sub, d.psn) {
				return clustertest.Lose
			}
			return clustertest.Deliver
		}
	}
}

// run lets events happen until all collectives are closed on all their ranks.
func (w *world) run() {
	limit := 10_000
	for _, c := range w.all {
		limit += 400 * c.g.Size() * (20 + int(c.g.Chunks()))
	}
	w.Run(limit)
	for _, c := range w.all {
		c.verify()
	}
	w.all, w.Ranks = nil, nil
}

// keepUp lets workers that have datagrams waiting take one within alpha: slow, but not stopped.
// Credit rests on that (see credit.go).
func (w *world) keepUp() {
	for _, c := range w.all {
		for _, m := range c.ranks {
			if q := m.grams; c.room > 0 && q.Len() > 0 && w.Now >= q.Since+m.op.cfg.Est.Alpha()/2 {
				w.Happen(&q.Pending)
			}
		}
	}
}

func (m *member) Done() bool { return m.closed }

func (m *member) NextTimer() step.Time {
	if m.closed || !m.started || m.mute {
		return step.Never
	}
	return m.op.Timer()
}

func (m *member) Timer() bool {
	now := m.c.w.Now
	if m.grams.Len() > 0 {
		if m.op.Queued(now); m.op.Timer() > now {
			return true
		}
	}
	return len(m.step(step.Event{Kind: step.EvTimer})) > 0
}

func (m *member) String() string {
	o := m.op
	return fmt.Sprintf(
		"%v, waits for %d, sent %d/%d/%d, active %v, missing %s, asked %d, grants own %d consumed %d all %d of %d",
		o.Phase(), o.WaitingOn(), o.snd.done, o.snd.handed, o.snd.total, o.snd.active, o.Missing(nil), o.fetch.asked(),
		o.cr.own, o.cr.consumed, o.cr.all, m.c.g.total)
}
