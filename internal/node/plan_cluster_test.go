package node

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
)

// A planCluster is some nodes that run plans and reductions, and the fabric
// between them: messages from rank to rank in order, pieces likewise, but messages
// and pieces in any order, and a network that adds up. What happens next is drawn.
type planCluster struct {
	t     *testing.T
	rng   *rand.Rand
	now   step.Time
	nodes []*planHost
	calls []*planCall
	comms map[uint32][]int
	todo  map[lineKey][]func() // by line: what is to happen, in order
	lines []lineKey            // in order of first use: nothing may depend on a map's order
	held  map[lineKey]bool
	hurt  bool
	sums  map[opKey]map[int64]*planSum
}

// lineKey is a line along which things keep their order.
type lineKey struct {
	what     string
	from, to int
}

type planHost struct {
	c    *planCluster
	id   int
	node *Node
	dead bool
	open map[opKey]*planShare
	in   map[opKey]*p2p.Inbox
	held map[heldKey][]byte

	early map[opKey][]func() // pieces for calls that are not made yet
	most  int                // operations in it, at most
}

type heldKey struct {
	opKey
	recv int // its number in the plan
}

// planCall is a collective that ranks may call, each in its own way.
type planCall struct {
	req    uint64
	comm   uint32
	algo   string // of package p2p, or "inc"
	spec   p2p.Spec
	shares map[int]*planShare
}

type planShare struct {
	call  *planCall
	rank  int // in the communicator
	plan  *p2p.Plan
	buf   []byte
	ended bool
	err   *Error
}

// planSum is a chunk that the network adds up.
type planSum struct {
	have  int
	data  []byte
	after []func() // of a block's first chunk: the others, which wait for it
}

func newPlanCluster(t *testing.T, size int, seed uint64, cfg Config) *planCluster {
	t.Helper()
	c := &planCluster{
		t: t, rng: rand.New(rand.NewPCG(seed, 7)), now: step.Second, comms: map[uint32][]int{},
		todo: map[lineKey][]func(){}, held: map[lineKey]bool{}, sums: map[opKey]map[int64]*planSum{},
	}
	for i := range size {
		cfg.Rank, cfg.Size = i, size
		c.nodes = append(c.nodes, &planHost{c: c, id: i, node: New(c.now, cfg), open: map[opKey]*planShare{}, in: map[opKey]*p2p.Inbox{}, held: map[heldKey][]byte{}, early: map[opKey][]func(){}})
	}
	c.comm(0, upTo(size)...)
	return c
}

func (c *planCluster) comm(id uint32, members ...int) {
	c.t.Helper()
	c.comms[id] = members
	for _, m := range members {
		if err := c.nodes[m].node.AddComm(id, members); err != nil {
			c.t.Fatal(err)
		}
	}
}

// quietConfig has no heartbeats: nothing happens that the test did not cause.
func quietConfig() Config {
	cfg := testConfig()
	cfg.Timeout = 0
	return cfg
}

// later puts something on a line.
func (c *planCluster) later(what string, from, to int, f func()) {
	k := lineKey{what, from, to}
	if _, known := c.todo[k]; !known {
		c.lines = append(c.lines, k)
	}
	c.todo[k] = append(c.todo[k], f)
}

// run lets things happen until nothing is left to happen, but what is held.
func (c *planCluster) run() {
	for {
		var ready []lineKey
		for _, k := range c.lines {
			if len(c.todo[k]) > 0 && !c.held[k] {
				ready = append(ready, k)
			}
		}
		if len(ready) == 0 {
			return
		}
		k := ready[c.rng.IntN(len(ready))]
		f := c.todo[k][0]
		c.todo[k] = c.todo[k][1:]
		c.now += tick
		if k.to < 0 || !c.nodes[k.to].dead {
			f()
		}
	}
}

// runFor lets things happen and time pass.
func (c *planCluster) runFor(d step.Time) {
	for end := c.now + d; c.now < end; c.now += ms {
		c.run()
		for _, h := range c.nodes {
			if !h.dead && h.node.NextTimer() <= c.now {
				h.node.Timer(c.now)
				h.act()
			}
		}
	}
	c.run()
}

// kill stops a process; its neighbours see its connections close.
func (c *planCluster) kill(rank int) {
	c.hurt, c.nodes[rank].dead = true, true
	for _, h := range c.nodes {
		if !h.dead {
			c.later("message", rank, h.id, func() { h.node.PeerLost(c.now, rank); h.act() })
		}
	}
}

// fill is what a rank of the communicator contributes.
func (k *planCall) fill(rank int) []byte {
	b := make([]byte, k.bytes())
	fill(b, k.req, rank)
	return b
}

func (k *planCall) bytes() (n int64) {
	for _, x := range k.spec.Counts {
		n += x
	}
	return n
}

func (k *planCall) block(rank int) (lo, hi int64) {
	for _, x := range k.spec.Counts[:rank] {
		lo += x
	}
	return lo, lo + k.spec.Counts[rank]
}

// input is a rank's buffer before the call.
func (k *planCall) input(rank int) []byte {
	all, out := k.fill(rank), make([]byte, k.bytes())
	switch k.spec.Kind {
	case p2p.Broadcast:
		if rank == k.spec.Root {
			return all
		}
	case p2p.Allgather:
		lo, hi := k.block(rank)
		copy(out[lo:hi], all[lo:hi])
	default:
		return all
	}
	return out
}

// right reports whether a rank's buffer is what it must be after the call.
func (k *planCall) right(rank int, buf []byte) bool {
	want := make([]byte, len(buf))
	lo, hi := int64(0), int64(len(buf))
	for r := range k.spec.Size {
		switch in := k.input(r); {
		case k.spec.Kind == p2p.Broadcast && r != k.spec.Root:
		default:
			for i, x := range in {
				want[i] += x
			}
		}
	}
	if k.spec.Kind == p2p.ReduceScatter {
		lo, hi = k.block(rank)
	}
	return bytes.Equal(buf[lo:hi], want[lo:hi])
}

// call plans a collective with blocks of some bytes that nobody has called yet.
func (c *planCluster) call(comm uint32, kind p2p.Kind, algo string, block int64) *planCall {
	size := len(c.comms[comm])
	k := &planCall{req: uint64(len(c.calls)), comm: comm, algo: algo, shares: map[int]*planShare{}}
	k.spec = p2p.Spec{Kind: kind, Size: size, Segment: 3, Counts: make([]int64, size)}
	if kind != p2p.Barrier {
		for i := range k.spec.Counts {
			k.spec.Counts[i] = block + int64(i%2)
		}
	}
	k.spec.Bytes = k.bytes()
	c.calls = append(c.calls, k)
	return k
}

// on makes the call on some ranks now.
func (c *planCluster) on(k *planCall, ranks ...int) {
	c.t.Helper()
	for _, r := range ranks {
		h := c.nodes[r]
		rank, _ := h.node.comms[k.comm].rankOf(r)
		k.shares[r] = &planShare{call: k, rank: rank, buf: k.input(rank)}
		if err := h.start(k, rank); err != nil {
			c.t.Fatalf("rank %d: %v", r, err)
		}
		h.act()
	}
}

func (h *planHost) start(k *planCall, rank int) error {
	spec := k.spec
	spec.Rank = rank
	if k.algo == "inc" {
		return h.node.StartReduction(h.c.now, k.comm, k.req, &p2p.Reduction{Kind: spec.Kind, Rank: rank, Size: spec.Size, Counts: spec.Counts, Chunk: incChunk})
	}
	plan, err := p2p.New(k.algo, spec)
	if err != nil {
		return err
	}
	k.shares[h.id].plan = plan
	return h.node.StartPlan(h.c.now, k.comm, k.req, plan)
}

// all calls on all members, and lets everything happen.
func (c *planCluster) all(k *planCall) *planCall {
	c.t.Helper()
	c.on(k, c.comms[k.comm]...)
	c.run()
	return k
}

// completed fails the test unless a call has ended well where it was made.
func (c *planCluster) completed(calls ...*planCall) {
	c.t.Helper()
	for _, k := range calls {
		for r, s := range k.shares {
			if !c.nodes[r].dead && (!s.ended || s.err != nil) {
				c.t.Fatalf("%s %s on rank %d: ended %v, error %v", k.algo, k.spec.Kind, r, s.ended, s.err)
			}
		}
	}
	c.untouched()
}

// failed fails the test unless a call has ended on all living ranks where it was
// made, and on those where it did not end well with that reason, each blaming
// one of those ranks. It returns on how many it did not.
func (c *planCluster) failed(k *planCall, reason Reason, culprits ...int) (ranks int) {
	c.t.Helper()
	for r, s := range k.shares {
		switch {
		case c.nodes[r].dead:
		case !s.ended:
			c.t.Fatalf("%v/%s on rank %d has not ended", k.spec.Kind, k.algo, r)
		case s.err == nil: // it had all it needs
		case s.err.Reason != reason || s.err.Op != k.spec.Kind || s.err.Missing == "" || !slices.Contains(culprits, s.err.Culprit):
			c.t.Fatalf("%v/%s on rank %d: %v; want %v, and one of %v blamed", k.spec.Kind, k.algo, r, s.err, reason, culprits)
		default:
			ranks++
		}
	}
	c.untouched()
	return ranks
}

// untouched fails the test if anybody wrote to a buffer after its call had ended.
func (c *planCluster) untouched() {
	c.t.Helper()
	for _, k := range c.calls {
		for r, s := range k.shares {
			if s.ended && !poisoned(s.buf) {
				c.t.Fatalf("%s %s: rank %d's buffer was touched after it was free", k.algo, k.spec.Kind, r)
			}
		}
	}
	for _, h := range c.nodes {
		if n := h.node.nonMulticast; n != 0 && !h.dead && h.idle() {
			c.t.Fatalf("rank %d counts %d operations under way, and has none", h.id, n)
		}
	}
}

func (h *planHost) idle() bool {
	for _, co := range h.node.order {
		if len(co.calls) > 0 {
			return false
		}
	}
	return true
}
