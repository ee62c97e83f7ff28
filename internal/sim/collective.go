package sim

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/p2p"
)

// collective is one call on all ranks of a communicator.
type collective struct {
	operation
	blocks
	outcomes
	req     uint64
	comm    uint32
	members []int
	seed    uint64
	plan    []*mcast.Geometry        // multicast only
	p2p     func(rank int) *p2p.Plan // point to point only
	order   *chunkOrder              // in-network reduction only
	mem     []*memory
	expect  []byte // result of a correct run, computed on demand
}

// outcomes holds the results of a collective by rank.
type outcomes struct {
	ranks    []outcome
	ended    int
	failed   bool
	sent     []int64 // payload that each rank sent across its NIC
	received []int64 // payload that each rank received across its NIC
}

// outcome is the end of a collective on one rank.
type outcome struct {
	ended bool
	at    int64
	err   *node.Error
	spent node.Spent
}

func newCollective(
	req uint64, comm uint32, members []int, plan []*mcast.Geometry, s mcast.Shape, inPlace bool, seed uint64,
) *collective {
	n := len(members)
	c := &collective{
		operation: operations[s.Kind.String()], blocks: newBlocks(s.Counts, int64(s.Chunk), n),
		outcomes: outcomes{ranks: make([]outcome, n), sent: make([]int64, n), received: make([]int64, n)},
		req:      req, comm: comm, members: members, plan: plan, seed: seed ^ req*0x9e3779b97f4a7c15,
	}
	c.inPlace = c.inPlace || inPlace
	for rank := range n {
		c.mem = append(c.mem, newMemory(c, rank))
	}
	return c
}

// byNetwork reports whether switches compute the reduction.
func (c *collective) byNetwork() bool { return c.plan == nil && c.p2p == nil }

func (c *collective) rankOf(host int) int {
	if c.members[host%len(c.members)] == host {
		return host % len(c.members)
	}
	return slices.Index(c.members, host)
}

// fill writes the contribution of a rank.
func (c *collective) fill(b []byte, rank int) {
	r := rand.NewPCG(c.seed, uint64(rank))
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
	c.expect = make([]byte, c.size())
	in := make([]byte, c.size())
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
	return c.expect
}
