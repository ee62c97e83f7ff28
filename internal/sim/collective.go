package sim

import (
	"encoding/binary"
	"math/rand/v2"
	"sort"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

// collective is one call on all ranks of a communicator.
type collective struct {
	req     uint64
	comm    uint32
	members []int
	counts  []int64
	displs  []int64 // len(counts)+1
	cells   []int   // first chunk of each block, numbered over all blocks
	chunk   int
	kind    wire.CallKind
	inPlace bool
	reduces bool
	uniform bool // whether all ranks contribute the same size
	move    bool
	seed    uint64
	expect  []byte
	sums    []uint32
	turn    []int                    // by chunk: its turn in an in-network reduction
	inTurn  []int                    // by turn: its chunk
	plan    []*mcast.Geometry        // multicast only
	p2p     func(rank int) *p2p.Plan // point to point only
	mem     []*memory

	ended    int
	ranks    []outcome
	sent     []int64 // payload that each rank sent across its NIC
	received []int64 // payload that each rank received across its NIC
	failed   bool
}

func newCollective(
	req uint64, comm uint32, members []int, plan []*mcast.Geometry, s mcast.Shape, inPlace bool, seed uint64,
) *collective {
	c := &collective{
		req: req, comm: comm, members: members, plan: plan, counts: s.Counts, chunk: s.Chunk, kind: s.Kind,
		reduces: s.Kind == wire.ReduceScatter || s.Kind == wire.Allreduce,
		inPlace: inPlace || s.Kind == wire.Broadcast, seed: seed ^ req*0x9e3779b97f4a7c15,
		ranks: make([]outcome, len(members)), sent: make([]int64, len(members)), received: make([]int64, len(members)),
	}
	c.displs, c.cells = make([]int64, len(s.Counts)+1), make([]int, len(s.Counts)+1)
	c.uniform = s.Counts[0] > 0
	for i, n := range s.Counts {
		c.uniform = c.uniform && n == s.Counts[0]
		c.displs[i+1] = c.displs[i] + n
		c.cells[i+1] = c.cells[i] + int((n+int64(s.Chunk)-1)/int64(s.Chunk))
	}
	c.move = c.total() <= moveLimit/int64(len(members))
	c.mem = make([]*memory, len(members))
	for i := range c.mem {
		c.mem[i] = newMemory(c, i)
	}
	return c
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

func (c *collective) total() int64 { return c.displs[len(c.counts)] }

func (c *collective) want() []byte {
	switch {
	case c.expect != nil:
	case c.reduces:
		c.expect = make([]byte, c.total())
		in := make([]byte, c.total())
		for r := range c.counts {
			c.fill(in, r)
			for i, x := range in {
				c.expect[i] += x
			}
		}
	default:
		c.expect = make([]byte, c.total())
		for r, n := range c.counts {
			c.fill(c.expect[c.displs[r]:][:n], r)
		}
	}
	return c.expect
}

// tag identifies a chunk. It never equals poisonTag.
func (c *collective) tag(cell int) uint32 {
	x := (uint64(cell) + c.seed) * 0x9e3779b97f4a7c15
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9
	return uint32(x>>32) | 1
}

// input returns the tag of a chunk of a rank's input to a reduction.
func (c *collective) input(rank, cell int) uint32 { return c.tag(cell*len(c.counts) + rank) }

// wantTag returns the expected tag of a chunk of the result.
func (c *collective) wantTag(cell int) uint32 {
	if !c.reduces {
		return c.tag(cell)
	}
	if c.sums == nil {
		c.sums = make([]uint32, c.cells[len(c.counts)])
		for i := range c.sums {
			for r := range c.counts {
				c.sums[i] += c.input(r, i)
			}
		}
	}
	return c.sums[cell]
}

// blockAt returns the block at an offset of the receive buffer.
func (c *collective) blockAt(off int64) int {
	if c.uniform {
		return int(off / c.counts[0])
	}
	return sort.Search(len(c.counts), func(i int) bool { return c.displs[i+1] > off })
}

// chunkEnd returns the end of the chunk at an offset.
func (c *collective) chunkEnd(off int64) int64 {
	r := c.blockAt(off)
	return min(off+int64(c.chunk)-(off-c.displs[r])%int64(c.chunk), c.displs[r+1])
}

// cell returns the number of the chunk at an offset of the receive buffer.
func (c *collective) cell(off int64) int {
	r := c.blockAt(off)
	return c.cells[r] + int((off-c.displs[r])/int64(c.chunk))
}
