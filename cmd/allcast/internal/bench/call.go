package bench

import (
	"github.com/allcast/allcast"
)

// call is one operation with its buffers. It can run any number of times.
type call struct {
	*Job
	op         string // operation of the job, or of one half of its pair
	comm       *allcast.Comm
	n          int64
	send, recv []byte
	bufs       [][]byte // all allocated buffers
	err        error    // error of the first failed allocation
	opts       []allcast.CallOption
}

func newCall(j *Job, comm *allcast.Comm, op, algo string, n int64) (*call, error) {
	c := &call{Job: j, op: op, comm: comm, n: n, opts: []allcast.CallOption{
		allcast.WithAlgorithm(algo), allcast.WithChains(j.Chains), allcast.WithSubgroups(j.Subgroups),
		allcast.WithChunk(j.Chunk),
	}}
	if j.ByRack {
		c.opts = append(c.opts, allcast.WithChainsByRack())
	}
	p, r := int64(comm.Size()), int64(comm.Rank())
	switch op {
	case "broadcast":
		c.recv = c.alloc(n)
	case "allgather", "allreduce":
		blocks := int64(1)
		if op == "allgather" {
			blocks = p
		}
		c.recv = c.alloc(n * blocks)
		if !j.InPlace {
			c.send = c.alloc(n)
		}
	case "reduce-scatter":
		c.send = c.alloc(n * p)
		if c.err == nil && j.InPlace {
			c.recv = c.send[r*n : (r+1)*n : (r+1)*n]
		} else {
			c.recv = c.alloc(n)
		}
	}
	return c, c.err
}

// alloc allocates a buffer, unless an earlier allocation failed.
func (c *call) alloc(n int64) []byte {
	if c.err != nil {
		return nil
	}
	var b []byte
	if b, c.err = c.comm.Alloc(int(n)); c.err == nil {
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

func (c *call) start() (*allcast.Request, error) {
	switch c.op {
	case "broadcast":
		return c.comm.StartBroadcast(c.recv, c.Root, c.opts...)
	case "allgather":
		return c.comm.StartAllgather(c.send, c.recv, c.opts...)
	case "reduce-scatter":
		return c.comm.StartReduceScatter(c.send, c.recv, c.DType, c.Reduce, c.opts...)
	case "allreduce":
		return c.comm.StartAllreduce(c.send, c.recv, c.DType, c.Reduce, c.opts...)
	}
	return c.comm.StartBarrier(c.opts[0])
}

// fill writes this rank's contribution to the call with this number.
func (c *call) fill(number uint64) {
	rank := c.comm.Rank()
	seed := patternSeed(number, rank)
	switch {
	case c.op == "reduce-scatter" || c.op == "allreduce":
		in := c.send
		if in == nil {
			in = c.recv
		}
		c.elements().fill(in, seed, 0)
	case c.op == "broadcast" && rank == c.Root:
		fillPattern(c.recv, seed, 0)
	case c.op == "allgather" && c.send != nil:
		fillPattern(c.send, seed, 0)
	case c.op == "allgather":
		fillPattern(c.recv[int64(rank)*c.n:][:c.n], seed, 0)
	}
}

// wrong counts the bytes that differ from the result of the call with this number.
func (c *call) wrong(number uint64) (wrong int64) {
	switch c.op {
	case "broadcast":
		return wrongPattern(c.recv, patternSeed(number, c.Root))
	case "allgather":
		for r := range c.comm.Size() {
			wrong += wrongPattern(c.recv[int64(r)*c.n:][:c.n], patternSeed(number, r))
		}
		if c.send != nil {
			wrong += wrongPattern(c.send, patternSeed(number, c.comm.Rank()))
		}
		return wrong
	case "reduce-scatter":
		block := uint64(c.n) / uint64(c.DType.Size())
		return c.elements().wrong(c.recv, number, uint64(c.comm.Rank())*block)
	case "allreduce":
		return c.elements().wrong(c.recv, number, 0)
	}
	return 0
}

func (c *call) elements() elements {
	return elements{t: c.DType, op: c.Reduce, ranks: c.comm.Size()}
}
