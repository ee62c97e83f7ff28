package mcast

import (
	"bytes"
	"math/rand/v2"
	"slices"

	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// clusterToken is that of a cluster's datagrams.
const clusterToken = 0xa11ca57

// A cluster is one collective on all its ranks, driven to its end without a
// network model: whatever is pending may happen next, in any order that the
// fabrics' contracts allow. What must hold meanwhile is in cluster_check_test.go.
type cluster struct {
	w     *world
	g     *Geometry
	net   network
	mem   *memory
	ranks []*member
	open  int        // of them, those not closed
	ready []*lane    // those with something pending
	state [][]uint8  // [subgroup][PSN]: unsent, handed over or left
	peers [][]int    // whom a rank may send messages to
	reads [][]uint32 // [subgroup][PSN]: times the owner itself was read from
	room  int        // when set: more datagrams must never wait at a rank
	log   func(string, ...any)
}

// world is what clusters share: time, chance, and what a process keeps.
type world struct {
	t      tb
	rng    *rand.Rand
	now    step.Time
	tick   step.Time // at most so much time passes between two events
	hosts  []host
	layout wire.Layout
	slow   int  // rank that seldom gets to do anything; -1: none
	deaf   bool // it is slow only to take datagrams
	calm   bool // timers wait until nothing else is pending: no cutoff before its time
}

type host struct {
	est   *Estimator
	pool  *Pool
	taken *place.Taken
}

// network says what happens to datagrams; each receiver's copy has its own fate.
type network struct {
	loss, duplicate, reorder float64
	drop                     func(to, sub int, psn uint32) bool // when set, instead of loss
}

// member is one rank of a cluster: its Collective and what its driver knows.
type member struct {
	rank     int
	op       *Collective
	started  bool
	complete bool
	closed   bool
	final    bool          // its right neighbour's Final was delivered
	phase    step.Phase    // after its last step
	placed   [][]bool      // [subgroup][PSN]: in place
	reading  [][]bool      // likewise: claimed for a read
	wanted   [][]bool      // likewise: of a read that is to be claimed
	reported [][]bool      // likewise: the Collective knows
	asked    [][]bool      // likewise: its left neighbour was asked for it
	missing  int           // chunks not placed
	unknown  int           // chunks that the Collective has not heard of
	intakes  []*Intake     // by subgroup
	handed   uint32        // chunks of its own handed to the fabric,
	told     uint32        // and those of them that the Collective knows have left
	inbox    map[int]*lane // by sender
	grams    lane
	reports  lane
	nic      lane
	sent     lane
	claims   lane
	fetch    lane
	start    lane
}

type laneKind uint8

const (
	laneStart  laneKind = iota
	laneMsg             // reliable messages from one rank, in order
	laneGram            // datagrams
	laneNIC             // chunks to send
	laneSent            // chunks that have left, to be told
	laneReport          // reports of receive workers
	laneClaim           // reads to be claimed
	laneRead            // reads to carry out
)

// A lane is a queue of one kind of things that can happen at a rank.
type lane struct {
	kind  laneKind
	at    *member
	from  int
	items []item
	index int       // in ready, if there are items
	since step.Time // there are, or the last was taken
}

type item struct {
	msg     []byte
	sub     int
	psn     uint32
	ranges  []wire.Range
	report  *Report
	payload []byte
}

func newWorld(t tb, seed uint64, size int, limits Limits, room uint64) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 0)), now: 1, tick: 200, slow: -1, layout: mustLayout(t, 0)}
	for range size {
		taken := &place.Taken{}
		w.hosts = append(w.hosts, host{NewEstimator(limits), NewPool(room, taken), taken})
	}
	return w
}

// memory is the users' buffers: what each rank sends and where it receives.
type memory struct {
	send, recv [][]byte
	want       []byte
}

func newMemory(rng *rand.Rand, counts []int64) *memory {
	m := &memory{}
	for _, n := range counts {
		block := make([]byte, n)
		for i := range block {
			block[i] = byte(rng.Uint32())
		}
		m.send = append(m.send, block)
		m.want = append(m.want, block...)
	}
	at := 0
	for _, block := range m.send {
		recv := bytes.Repeat([]byte{0xee}, len(m.want))
		at += copy(recv[at:], block)
		m.recv = append(m.recv, recv)
	}
	return m
}

// open makes an operation on all ranks, none of which has started it.
func (w *world) open(g *Geometry, mem *memory, net network, cfg Config) *cluster {
	c := &cluster{w: w, g: g, net: net, mem: mem, log: func(string, ...any) {}}
	for sub := range g.Subgroups() {
		c.state = append(c.state, make([]uint8, g.PSNs(sub)))
		c.reads = append(c.reads, make([]uint32, g.PSNs(sub)))
	}
	for r := range g.Size() {
		cfg.Geometry, cfg.Rank, cfg.Est, cfg.Pool = g, r, w.hosts[r].est, w.hosts[r].pool
		m := &member{rank: r, op: New(cfg), inbox: map[int]*lane{}}
		m.grams, m.nic = lane{kind: laneGram, at: m}, lane{kind: laneNIC, at: m}
		m.sent, m.fetch = lane{kind: laneSent, at: m}, lane{kind: laneRead, at: m}
		m.reports, m.claims = lane{kind: laneReport, at: m}, lane{kind: laneClaim, at: m}
		m.start = lane{kind: laneStart, at: m}
		for sub := range g.Subgroups() {
			placed := make([]bool, g.PSNs(sub))
			psn, n := g.Block(sub, r)
			for i := range n {
				placed[psn+i] = true
			}
			m.placed = append(m.placed, placed)
			m.reading = append(m.reading, make([]bool, g.PSNs(sub)))
			m.wanted = append(m.wanted, make([]bool, g.PSNs(sub)))
			m.reported = append(m.reported, slices.Clone(placed))
			m.asked = append(m.asked, make([]bool, g.PSNs(sub)))
			m.missing += len(placed) - int(n)
			m.intakes = append(m.intakes, NewIntake(w.layout, uint32(1+w.rng.IntN(8)), w.hosts[r].taken, func() *Report { return &Report{} }))
			m.intakes[sub].Open(clusterToken, m.op.arrived[sub].Placement)
		}
		m.unknown = m.missing
		c.ranks = append(c.ranks, m)
		c.open++
		c.push(&m.start, item{})
		peers := AppendPeers(nil, r, g.Size())
		pred, succ := g.neighbours(r)
		c.peers = append(c.peers, append(peers, pred, succ))
	}
	return c
}

func (c *cluster) push(l *lane, it item) {
	if len(l.items) == 0 {
		l.index, l.since = len(c.ready), c.w.now
		c.ready = append(c.ready, l)
	}
	l.items = append(l.items, it)
}

// take removes the i-th item of a lane.
func (c *cluster) take(l *lane, i int) item {
	it := l.items[i]
	l.since = c.w.now
	copy(l.items[i:], l.items[i+1:])
	if l.items = l.items[:len(l.items)-1]; len(l.items) == 0 {
		last := len(c.ready) - 1
		c.ready[l.index] = c.ready[last]
		c.ready[l.index].index = l.index
		c.ready = c.ready[:last]
	}
	return it
}
