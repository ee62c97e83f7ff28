package node

import (
	"slices"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// job is a collective that ranks may call.
type job struct {
	*clustertest.Reference
	c      *cluster
	req    uint64
	comm   uint32
	kind   wire.CallKind
	geos   []*mcast.Geometry // rounds of multicast; with algorithm inc, those after the reduction
	algo   string            // otherwise: of package p2p, or "inc"
	spec   p2p.Spec
	change func(rank int, s *p2p.Spec) // if set, makes the call of a rank wrong
	limit  func(rank int) step.Time    // if set, timeout of the call on a world rank; 0 for none
	shares map[int]*share              // by world rank, of the ranks that called
}

// share is the part of one rank in a job: its buffers and its outcome.
type share struct {
	job        *job
	rank       int    // in the communicator
	seq        uint64 // by the order of calls
	send, recv []byte // a point-to-point call uses only recv: its input, output and scratch memory
	plan       *p2p.Plan
	rounds     []*hostRound
	ended      bool
	err        *Error
	fallback   string
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

// job plans a multicast collective that no rank has called yet.
func (c *cluster) job(comm uint32, s mcast.Shape) *job {
	c.T.Helper()
	plan, err := mcast.Plan(s, c.cfg.Layout)
	if err != nil {
		c.Failf("%+v: %v", s, err)
	}
	return c.add(&job{comm: comm, kind: s.Kind, geos: plan, Reference: &clustertest.Reference{
		Kind: wire.Allgather, Size: len(s.Counts), Counts: s.Counts,
	}})
}

// plan plans a point-to-point collective, with blocks of some bytes, that no rank has called yet.
func (c *cluster) plan(comm uint32, kind p2p.Kind, algo string, block int64) *job {
	size := len(c.comms[comm])
	spec := p2p.Spec{Kind: kind, Size: size, Segment: 3, Counts: make([]int64, size)}
	if kind.Rooted() && kind != p2p.Broadcast {
		spec.Root = int(c.Seed) % size
	}
	for i := range spec.Counts {
		switch kind {
		case p2p.Barrier:
		case p2p.Alltoall:
			spec.Counts[i] = block
		default:
			spec.Counts[i] = block + int64(i%2)
		}
	}
	j := &job{comm: comm, kind: kind, algo: algo, spec: spec}
	if algo == "inc" && kind == p2p.Allreduce {
		j.geos = c.gatherRounds(spec.Counts)
	}
	j.Reference = &clustertest.Reference{Kind: kind, Size: size, Root: spec.Root, Counts: spec.Counts}
	j.spec.Bytes = j.Total()
	return c.add(j)
}

func (c *cluster) add(j *job) *job {
	j.c, j.req, j.shares = c, uint64(len(c.jobs)), map[int]*share{}
	j.Seed = j.req
	c.jobs = append(c.jobs, j)
	return j
}

// rounds is the number of operations that the call takes.
func (j *job) rounds() int {
	if j.algo == "inc" {
		return 1 + len(j.geos)
	}
	return max(1, len(j.geos))
}

// geometry is the geometry of a round, or nil.
func (j *job) geometry(round int) *mcast.Geometry {
	switch {
	case j.algo == "inc" && round > 0:
		return j.geos[round-1]
	case j.algo == "inc" || j.geos == nil:
		return nil
	}
	return j.geos[round]
}

// on makes the call on some ranks now.
func (j *job) on(ranks ...int) *job {
	j.c.T.Helper()
	for _, r := range ranks {
		j.c.hosts[r].start(j)
	}
	return j
}

// all makes the call on all members and lets everything happen.
func (j *job) all() *job {
	j.c.T.Helper()
	j.on(j.c.comms[j.comm]...)
	j.c.run()
	return j
}

// call plans a multicast collective and calls it on all members.
func (c *cluster) call(comm uint32, s mcast.Shape) *job {
	c.T.Helper()
	return c.job(comm, s).on(c.comms[comm]...)
}

// start makes a call.
func (h *host) start(j *job) {
	c := h.c
	s := &share{job: j, rank: slices.Index(c.comms[j.comm], h.ID), seq: h.nextSeq[j.comm], recv: make([]byte, j.Total())}
	j.shares[h.ID] = s
	h.nextSeq[j.comm] += uint64(j.rounds())
	h.shares[j.comm] = append(h.shares[j.comm], s)
	if err := s.start(h); err != nil {
		c.Failf("rank %d could not start: %v", h.ID, err)
	}
	if j.limit != nil && j.limit(h.ID) > 0 {
		h.node.SetDeadline(j.comm, j.req, c.Now+j.limit(h.ID))
	}
	h.act()
}

func (s *share) start(h *host) (err error) {
	j, now, spec := s.job, h.c.Now, s.job.spec
	spec.Rank = s.rank
	if j.algo == "inc" {
		return h.startReduction(s)
	}
	if j.geos != nil {
		lo, hi := j.Block(s.rank)
		s.send = j.Input(s.rank)[lo:hi]
		copy(s.recv[lo:], s.send) // as every driver does first
		return h.node.Start(now, j.comm, j.req, j.geos)
	}
	s.recv = j.Input(s.rank)
	spec.Counts, spec.Receives = j.Known(s.rank)
	if j.change != nil {
		spec.Counts = slices.Clone(spec.Counts)
		j.change(s.rank, &spec)
	}
	if s.plan, err = p2p.New(j.algo, spec); err != nil {
		return err
	}
	if n := s.plan.Input + s.plan.Output; n != int64(len(s.recv)) {
		if j.change == nil {
			h.c.Failf("rank %d: a buffer of %d bytes, and the plan uses %d", h.ID, len(s.recv), n)
		}
		s.recv = make([]byte, n)
	}
	s.recv = append(s.recv, make([]byte, s.plan.Scratch)...)
	copyWithin(s.recv, s.plan.Before)
	return h.node.StartPlan(now, j.comm, j.req, s.plan)
}

// copyWithin carries out the copies of a plan.
func copyWithin(buf []byte, copies []p2p.Copy) {
	for _, x := range copies {
		copy(buf[x.To:x.To+x.Len], buf[x.From:x.From+x.Len])
	}
}

func (s *share) poison() {
	clustertest.Poison(s.send)
	clustertest.Poison(s.recv)
}

// ended reports whether the jobs have ended on all living ranks that called them.
func (c *cluster) ended(jobs ...*job) bool {
	for _, j := range jobs {
		for r, s := range j.shares {
			if !s.ended && !c.hosts[r].Dead {
				return false
			}
		}
	}
	return true
}

// finish runs until all calls have ended and no rank holds anything for them, and checks that nothing
// touched a buffer after that.
func (c *cluster) finish() {
	c.T.Helper()
	c.Until("the end of all calls", func() bool {
		return !slices.ContainsFunc(c.hosts, func(h *host) bool { return !h.Dead && !h.Done() })
	})
	if c.hurt {
		c.RunFor(2 * max(c.cfg.Timeout, ms)) // ranks that wait for nothing learn of it too
	}
	c.Until("all operations being closed and drained", c.drained)
	c.untouched()
	for _, h := range c.hosts {
		if n := h.node.pool.Lent(); n != 0 && !h.Dead {
			c.Failf("rank %d: %d places of the pool were not returned", h.ID, n)
		}
	}
}

// drained reports whether no operation of a working communicator is left.
func (c *cluster) drained() bool {
	for _, h := range c.hosts {
		for _, co := range h.node.order {
			if !h.Dead && co.broken == nil && h.waiting[co.id] > 0 {
				return false
			}
		}
	}
	return true
}

// untouched fails the test if a buffer was written after its call had ended, or if a node counts
// operations that it does not have.
func (c *cluster) untouched() {
	c.T.Helper()
	for _, j := range c.jobs {
		for r, s := range j.shares {
			if s.ended && (!clustertest.Poisoned(s.send) || !clustertest.Poisoned(s.recv)) {
				c.Failf("request %d: the buffers of rank %d were touched after they were free", j.req, r)
			}
		}
	}
	for _, h := range c.hosts {
		busy := slices.ContainsFunc(h.node.order, func(co *comm) bool { return len(co.calls.all) > 0 })
		if n := h.node.others.InFlight(); n != 0 && !h.Dead && !busy {
			c.Failf("rank %d counts %d operations under way, and has none", h.ID, n)
		}
	}
}

// allRight fails the test unless the jobs completed on all ranks that called them.
func (c *cluster) allRight(jobs ...*job) {
	c.T.Helper()
	for _, j := range jobs {
		for r, s := range j.shares {
			if !c.hosts[r].Dead && (!s.ended || s.err != nil) {
				c.Failf("request %d, %v %s, on rank %d: ended %v, error %v", j.req, j.kind, j.algo, r, s.ended, s.err)
			}
		}
	}
	c.untouched()
}

// allFailed fails the test unless the jobs failed on all living ranks that called them, with that
// culprit and one of those reasons.
func (c *cluster) allFailed(culprit int, reasons []Reason, jobs ...*job) {
	c.T.Helper()
	for _, j := range jobs {
		for r, s := range j.shares {
			if c.hosts[r].Dead {
				continue
			}
			if !s.ended || s.err == nil || s.err.Culprit != culprit || !slices.Contains(reasons, s.err.Reason) {
				c.Failf("request %d on rank %d: ended %v, error %v; want culprit %d and one of %v",
					j.req, r, s.ended, s.err, culprit, reasons)
			}
		}
	}
}

// failures fails the test unless a job has ended on all living ranks that called it, and each failure has
// that reason and blames one of those ranks. It returns the number of failures.
func (j *job) failures(reason Reason, culprits ...int) (n int) {
	c := j.c
	c.T.Helper()
	for r, s := range j.shares {
		switch {
		case c.hosts[r].Dead:
		case !s.ended:
			c.Failf("%v/%s on rank %d has not ended", j.kind, j.algo, r)
		case s.err == nil: // it had everything that it needs
		case s.err.Reason != reason || !slices.Contains(culprits, s.err.Culprit):
			c.Failf("%v/%s on rank %d: %v; want %v, and one of %v blamed", j.kind, j.algo, r, s.err, reason, culprits)
		default:
			n++
		}
	}
	c.untouched()
	return n
}

// abort breaks a communicator at the request of a rank's user.
func (c *cluster) abort(rank int, comm uint32) {
	c.T.Helper()
	if err := c.hosts[rank].node.Abort(comm); err != nil {
		c.Failf("rank %d: %v", rank, err)
	}
	c.hosts[rank].act()
}
