package main

import (
	"github.com/allcast/allcast"
)

// perfCall is one operation with its buffers, to be run again and again.
type perfCall struct {
	*perfJob
	op         string // the job's, or one of its pair
	comm       *allcast.Comm
	n          int64
	send, recv []byte
	bufs       [][]byte // all that were made,
	err        error    // or why one was not
	opts       []allcast.CallOption
}

func (j *perfJob) call(comm *allcast.Comm, op, algo string, n int64) (*perfCall, error) {
	c := &perfCall{perfJob: j, op: op, comm: comm, n: n, opts: []allcast.CallOption{
		allcast.WithAlgorithm(algo), allcast.WithChains(j.chains), allcast.WithSubgroups(j.subgroups), allcast.WithChunk(j.chunk),
	}}
	if j.byRack {
		c.opts = append(c.opts, allcast.WithChainsByRack())
	}
	p, r := int64(comm.Size()), int64(comm.Rank())
	switch op {
	case "broadcast":
		c.recv = c.alloc(n)
	case "allgather":
		c.recv = c.alloc(n * p)
		if !j.inplace {
			c.send = c.alloc(n)
		}
	case "reduce-scatter":
		c.send = c.alloc(n * p)
		if c.err == nil && j.inplace {
			c.recv = c.send[r*n : (r+1)*n : (r+1)*n]
		} else {
			c.recv = c.alloc(n)
		}
	case "allreduce":
		c.recv = c.alloc(n)
		if !j.inplace {
			c.send = c.alloc(n)
		}
	}
	return c, c.err
}

// alloc makes a buffer, unless one could not be made.
func (c *perfCall) alloc(n int64) []byte {
	if c.err != nil {
		return nil
	}
	var b []byte
	if b, c.err = c.comm.Alloc(int(n)); c.err == nil {
		c.bufs = append(c.bufs, b)
	}
	return b
}

func (c *perfCall) free() {
	for _, b := range c.bufs {
		_ = c.comm.Free(b) // it is ours
	}
	c.bufs, c.send, c.recv = nil, nil, nil
}

// start begins the operation.
func (c *perfCall) start() (*allcast.Request, error) {
	switch c.op {
	case "broadcast":
		return c.comm.StartBroadcast(c.recv, c.root, c.opts...)
	case "allgather":
		return c.comm.StartAllgather(c.send, c.recv, c.opts...)
	case "reduce-scatter":
		return c.comm.StartReduceScatter(c.send, c.recv, c.dtype, c.reduce, c.opts...)
	case "allreduce":
		return c.comm.StartAllreduce(c.send, c.recv, c.dtype, c.reduce, c.opts...)
	}
	return c.comm.StartBarrier(c.opts[0])
}

// fill writes this rank's contribution to the call of that number.
func (c *perfCall) fill(number uint64) {
	rank := c.comm.Rank()
	seed := patternSeed(number, rank)
	switch {
	case c.op == "reduce-scatter" || c.op == "allreduce":
		in := c.send
		if in == nil {
			in = c.recv
		}
		c.elements().fill(in, seed, 0)
	case c.op == "broadcast" && rank == c.root:
		fillPattern(c.recv, seed)
	case c.op == "allgather" && c.send != nil:
		fillPattern(c.send, seed)
	case c.op == "allgather":
		fillPattern(c.recv[int64(rank)*c.n:][:c.n], seed)
	}
}

// wrong counts the bytes that are not as the call of that number should have left them.
func (c *perfCall) wrong(number uint64) (wrong int64) {
	switch c.op {
	case "broadcast":
		return wrongPattern(c.recv, patternSeed(number, c.root))
	case "allgather":
		for r := range c.comm.Size() {
			wrong += wrongPattern(c.recv[int64(r)*c.n:][:c.n], patternSeed(number, r))
		}
		if c.send != nil {
			wrong += wrongPattern(c.send, patternSeed(number, c.comm.Rank()))
		}
		return wrong
	case "reduce-scatter":
		block := uint64(c.n) / uint64(c.dtype.Size())
		return c.elements().wrong(c.recv, number, uint64(c.comm.Rank())*block)
	case "allreduce":
		return c.elements().wrong(c.recv, number, 0)
	}
	return 0
}

func (c *perfCall) elements() elements {
	return elements{t: c.dtype, op: c.reduce, ranks: c.comm.Size()}
}
