package bench

import (
	"github.com/allcast/allcast"
)

// call is one operation with its buffers. It can run any number of times.
type call struct {
	*Job
	*Operation // operation of the job, or of one half of its pair
	shape
	layout
	comm          *allcast.Comm
	base          int // world rank of rank 0
	send, recv    []byte
	input, output []byte   // contribution and result of this rank; in place, parts of the same buffer
	sends, recvs  [][]byte // pieces of send and recv, for operations on several buffers
	bufs          [][]byte // all allocated buffers
	err           error    // error of the first failed allocation
	opts          []allcast.CallOption
}

func newCall(j *Job, comm *allcast.Comm, op *Operation, algo string, n int64) (*call, error) {
	c := &call{
		Job: j, Operation: op, comm: comm, base: comm.WorldRank(0),
		shape: j.shape(op, comm.Rank(), comm.Size(), n),
		opts: []allcast.CallOption{
			allcast.WithAlgorithm(algo), allcast.WithChains(j.Chains), allcast.WithSubgroups(j.Subgroups),
			allcast.WithChunk(j.Chunk),
		},
	}
	if j.ByRack {
		c.opts = append(c.opts, allcast.WithChainsByRack())
	}
	if j.Reduce == allcast.PremultipliedSum && op.reduces {
		c.opts = append(c.opts, allcast.WithFactor(factor(c.rank)))
	}
	c.layout = op.plan(c.shape)
	in, out := size(c.in), size(c.out)
	// An operation without the choice always works in place.
	switch share := j.InPlace || !op.Takes("--inplace"); {
	case share && c.sharing == inputInRecv:
		c.recv = c.alloc(c.out)
		c.input, c.output = part(c.recv, c.at, in), c.recv
	case share && c.sharing == outputInSend:
		c.send = c.alloc(c.in)
		c.input, c.output = c.send, part(c.send, c.at, out)
	default:
		c.send, c.recv = c.alloc(c.in), c.alloc(c.out)
		c.input, c.output = c.send, c.recv
	}
	c.sends, c.recvs = cut(c.send, c.buffers), cut(c.recv, c.buffers)
	return c, c.err
}

func (j *Job) shape(op *Operation, rank, ranks int, n int64) shape {
	s := shape{rank: rank, ranks: ranks, root: j.Root, buffers: max(1, j.Buffers), n: n, unit: 1}
	if op.reduces {
		s.unit = int64(j.DType.Size())
	}
	return s
}

func part(b []byte, at, n int64) []byte {
	if b == nil {
		return nil // its allocation failed
	}
	return b[at : at+n : at+n]
}

// cut divides a buffer into k equal pieces.
func cut(b []byte, k int) [][]byte {
	pieces := make([][]byte, k)
	for i := range pieces {
		pieces[i] = b[i*len(b)/k : (i+1)*len(b)/k : (i+1)*len(b)/k]
	}
	return pieces
}

// alloc allocates a buffer, unless the rank has none or an earlier allocation failed.
func (c *call) alloc(bs []block) []byte {
	if c.err != nil || bs == nil {
		return nil
	}
	var b []byte
	if b, c.err = c.comm.Alloc(int(size(bs))); c.err == nil {
		c.bufs = append(c.bufs, b)
	}
	return b
}

func (c *call) free() {
	for _, b := range c.bufs {
		_ = c.comm.Free(b) // cannot fail: Alloc returned it
	}
	c.bufs, c.send, c.recv = nil, nil, nil
}

// counts returns the sizes of the blocks of all ranks.
func (c *call) counts(count func(rank int) int64) []int {
	list := make([]int, c.ranks)
	for r := range list {
		list[r] = int(count(r))
	}
	return list
}

// fill writes this rank's contribution to the call with this number.
func (c *call) fill(number uint64) {
	if c.reduces {
		c.elements().fill(c.input, patternSeed(number, c.base+c.rank, 0), 0)
		return
	}
	rest := c.input
	for _, b := range c.in {
		fillPattern(rest[:b.n], patternSeed(number, c.base+b.from, b.index), 0)
		rest = rest[b.n:]
	}
}

// wrong counts the bytes that differ from the result of the call with this number, and changed bytes of the input.
func (c *call) wrong(number uint64) (wrong int64) {
	if c.reduces {
		return c.elements().wrong(c.output, number, uint64(c.first/c.unit))
	}
	check := func(rest []byte, blocks []block) {
		for _, b := range blocks {
			wrong += wrongPattern(rest[:b.n], patternSeed(number, c.base+b.from, b.index))
			rest = rest[b.n:]
		}
	}
	check(c.output, c.out)
	if c.send != nil {
		check(c.send, c.in)
	}
	return wrong
}

func (c *call) elements() elements {
	return elements{t: c.DType, op: c.Reduce, ranks: c.ranks, base: c.base}
}
