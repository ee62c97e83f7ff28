package node

import (
	"slices"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/wire"
)

// job is a collective that ranks may call.
type job struct {
	c      *cluster
	req    uint64
	comm   uint32
	shape  mcast.Shape
	plan   []*mcast.Geometry
	shares map[int]*share // by world rank, of those that called
	expect []byte
}

// share is one rank's part of a job: its buffers, and how it ended.
type share struct {
	job        *job
	seq        uint64 // by the order of calls
	send, recv []byte
	rounds     []*region
	ended      bool
	err        *Error
}

// allgather is the Shape of p equal blocks.
func allgather(p int, bytes int64, chunk int) mcast.Shape {
	return mcast.Shape{
		Kind: wire.Allgather, Counts: slices.Repeat([]int64{bytes}, p), Chunk: chunk, Chains: 1, Subgroups: 1,
	}
}

// broadcast is the Shape of one block.
func broadcast(p, root int, bytes int64, chunk int) mcast.Shape {
	s := mcast.Shape{Kind: wire.Broadcast, Root: root, Counts: make([]int64, p), Chunk: chunk, Chains: 1, Subgroups: 1}
	s.Counts[root] = bytes
	return s
}

// job plans a collective that nobody has called yet.
func (c *cluster) job(comm uint32, s mcast.Shape) *job {
	c.t.Helper()
	plan, err := mcast.Plan(s, c.cfg.Layout)
	if err != nil {
		c.t.Fatalf("%+v: %v", s, err)
	}
	j := &job{c: c, req: uint64(len(c.jobs)), comm: comm, shape: s, plan: plan, shares: map[int]*share{}}
	c.jobs = append(c.jobs, j)
	return j
}

// on makes the call on some ranks now.
func (j *job) on(ranks ...int) *job {
	j.c.t.Helper()
	for _, r := range ranks {
		j.c.hosts[r].start(j)
	}
	return j
}

// call plans a collective and calls it on all members.
func (c *cluster) call(comm uint32, s mcast.Shape) *job {
	c.t.Helper()
	return c.job(comm, s).on(c.comms[comm]...)
}

func newShare(j *job, rank int) *share {
	s := &share{job: j, recv: make([]byte, len(j.want()))}
	j.shares[rank] = s
	at := 0
	for r, m := range j.c.comms[j.comm] {
		n := int(j.shape.Counts[r])
		if m == rank {
			s.send = make([]byte, n)
			fill(s.send, j.req, r)
			copy(s.recv[at:], s.send) // as every library does first
		}
		at += n
	}
	return s
}

// want is what everybody has in the end.
func (j *job) want() []byte {
	if j.expect == nil {
		j.expect = []byte{}
		for r, n := range j.shape.Counts {
			b := make([]byte, n)
			fill(b, j.req, r)
			j.expect = append(j.expect, b...)
		}
	}
	return j.expect
}

const poisonByte = 0xa5

func poison(b []byte) {
	for i := range b {
		b[i] = poisonByte
	}
}

func poisoned(b []byte) bool {
	return !slices.ContainsFunc(b, func(x byte) bool { return x != poisonByte })
}

// ended reports whether the jobs have ended on all living ranks that called them.
func (c *cluster) ended(jobs ...*job) bool {
	for _, j := range jobs {
		for r, s := range j.shares {
			if !s.ended && !c.hosts[r].dead {
				return false
			}
		}
	}
	return true
}

// finish runs until all calls have ended and nobody holds anything for them any
// more, and checks that nobody touched a buffer after that.
func (c *cluster) finish() {
	c.t.Helper()
	c.until("the end of all calls", func() bool { return c.open == 0 })
	if c.hurt {
		c.runFor(2 * max(c.cfg.Timeout, ms)) // for those who wait for nothing to learn of it too
	}
	c.until("all operations being closed and drained", c.settled)
	for _, j := range c.jobs {
		for r, s := range j.shares {
			if s.ended && (!poisoned(s.send) || !poisoned(s.recv)) {
				c.t.Fatalf("request %d: rank %d's buffers were touched after they were free", j.req, r)
			}
		}
	}
	for _, h := range c.hosts {
		if n := h.node.pool.Lent(); n != 0 && !h.dead {
			c.t.Fatalf("rank %d: %d places of the pool did not come back", h.id, n)
		}
	}
}

// settled reports whether no operation of a communicator that works is left.
func (c *cluster) settled() bool {
	for _, h := range c.hosts {
		for _, co := range h.node.order {
			if !h.dead && co.broken == nil && h.undrained[co.id] > 0 {
				return false
			}
		}
	}
	return true
}

// allRight fails the test unless the jobs completed on all ranks that called them.
func (c *cluster) allRight(jobs ...*job) {
	c.t.Helper()
	for _, j := range jobs {
		for r, s := range j.shares {
			if !c.hosts[r].dead && (!s.ended || s.err != nil) {
				c.t.Fatalf("request %d on rank %d: ended %v, error %v", j.req, r, s.ended, s.err)
			}
		}
	}
}

// allFailed fails the test unless the jobs failed on all living ranks that called
// them, with that culprit and one of those reasons.
func (c *cluster) allFailed(culprit int, reasons []Reason, jobs ...*job) {
	c.t.Helper()
	for _, j := range jobs {
		for r, s := range j.shares {
			if c.hosts[r].dead {
				continue
			}
			if !s.ended || s.err == nil || s.err.Culprit != culprit || !slices.Contains(reasons, s.err.Reason) {
				c.t.Fatalf("request %d on rank %d: ended %v, error %v; want culprit %d and one of %v", j.req, r, s.ended, s.err, culprit, reasons)
			}
		}
	}
}

// abort breaks a communicator at the request of a rank's user.
func (c *cluster) abort(rank int, comm uint32) {
	c.t.Helper()
	if err := c.hosts[rank].node.Abort(comm); err != nil {
		c.t.Fatalf("rank %d: %v", rank, err)
	}
	c.hosts[rank].act()
}
