package sim

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/p2p"
)

// collective is one call on all ranks of a communicator.
type collective struct {
	operation
	blocks
	outcomes
	req      uint64
	comm     uint32
	members  []int
	root     int
	packed   bool // whether packets hold parts of several blocks
	tags     bool // whether memory holds tags even if there is room for bytes
	floats   bool // whether elements are 32-bit floating-point numbers, not bytes
	tree     *inc.Tree
	seed     uint64
	plan     []*mcast.Geometry // multicast only
	plans    []*p2p.Plan       // point to point only: by rank, nil once the rank has started
	then     []*mcast.Geometry // reduction by aggregators only: rounds of the Allgather of an Allreduce
	exchange *exchange         // nil if all ranks have the same blocks
	mem      []*memory
	expect   []byte // result of a correct run, computed on demand
}

// outcomes holds the results of a collective by rank.
type outcomes struct {
	ranks    []outcome
	ended    int
	failed   bool
	sent     []int64 // payload that each rank sent across its NIC
	received []int64 // payload that each rank received across its NIC
	arrived  int64   // number of packets with payload that all ranks received
}

// outcome is the end of a collective on one rank.
type outcome struct {
	ended bool
	half  bool // sendrecv: whether the first of the rank's two messages is through
	at    int64
	err   *node.Error
	spent node.Spent

	fallback string // reason why aggregators did not make all sums
}

// newCollective returns a call without buffers.
func newCollective(req uint64, comm uint32, members []int, s mcast.Shape, seed uint64) *collective {
	n := len(members)
	c := &collective{
		operation: operationOf(s.Kind), blocks: newBlocks(s.Counts, int64(s.Chunk), false),
		outcomes: outcomes{ranks: make([]outcome, n), sent: make([]int64, n), received: make([]int64, n)},
		req:      req, comm: comm, members: members, root: s.Root, seed: seed ^ req*0x9e3779b97f4a7c15,
	}
	return c
}

// allocate creates the buffers of all ranks. It moves real bytes if there is room for them.
func (c *collective) allocate(inPlace bool) {
	c.inPlace = c.inPlace || inPlace
	size := c.total() * int64(len(c.members))
	if c.exchange != nil {
		for rank := range c.members {
			c.exchange.forEach(rank, func(_, _ int, n int64, _ bool) { size += n })
		}
	}
	for _, p := range c.plans {
		size += p.Scratch
	}
	c.move = size <= moveLimit && !c.tags
	for rank := range c.members {
		var p *p2p.Plan
		if c.plans != nil {
			p = c.plans[rank]
		}
		c.mem = append(c.mem, newMemory(c, rank, p))
	}
}

// byNetwork reports whether aggregators compute the reduction.
func (c *collective) byNetwork() bool { return c.plan == nil && c.plans == nil && c.exchange == nil }

func (c *collective) rankOf(host int) int {
	if c.members[host%len(c.members)] == host {
		return host % len(c.members)
	}
	return slices.Index(c.members, host)
}

// elementType returns the type of the elements of a reduction.
func (c *collective) elementType() uint8 {
	if c.floats {
		return typeFloat32
	}
	return typeByte
}

// sum adds two operands of len(b) bytes.
func (c *collective) sum(sum, a, b []byte) {
	if c.floats {
		addFloats(sum, a, b)
		return
	}
	addBytes(sum, a, b)
}

// fill writes random bytes: the contribution of a rank, or a block of an exchange.
func (c *collective) fill(b []byte, stream int) {
	r := rand.NewPCG(c.seed, uint64(stream))
	if c.floats {
		c.fillFloats(b, rand.New(r))
		return
	}
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, r.Uint64())
		b = b[8:]
	}
	for i := range b {
		b[i] = byte(r.Uint64())
	}
}

// want returns the memory of a correct result.
func (c *collective) want() []byte {
	if c.expect != nil {
		return c.expect
	}
	c.expect = make([]byte, c.memory())
	in := make([]byte, c.memory())
	for r := range c.counts {
		if !c.reduces {
			c.fill(c.block(c.expect, r), r)
			continue
		}
		c.fill(in, r)
		for i, x := range in {
			c.expect[i] += x
		}
	}
	if c.floats {
		c.expectFloats()
	}
	return c.expect
}

// fillFloats writes random numbers of very different sizes, so that their sum depends on the order of addition.
func (c *collective) fillFloats(b []byte, r *rand.Rand) {
	for ; len(b) >= 4; b = b[4:] {
		x := float32(math.Ldexp(r.Float64()-0.5, r.IntN(20)))
		binary.LittleEndian.PutUint32(b, math.Float32bits(x))
	}
}

// expectFloats computes the sum of floats in the order of the tree of aggregators. Each rank adds its own last.
func (c *collective) expectFloats() {
	in := make([][]byte, len(c.members))
	for rank := range in {
		in[rank] = make([]byte, c.memory())
		c.fill(in[rank], rank)
	}
	for owner := range in {
		at := func(rank int) []byte { return c.block(in[rank], owner) }
		sum := c.block(c.expect, owner)
		c.tree.Combine(sum, c.members[owner], make([]byte, c.tree.Depth()*len(sum)), func(world int) []byte {
			return at(c.rankOf(world))
		}, func(dst, src []byte) { addFloats(dst, dst, src) })
		addFloats(sum, sum, at(owner))
	}
}
