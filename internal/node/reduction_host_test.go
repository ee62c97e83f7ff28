package node

import (
	"fmt"
	"slices"
	"strings"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/wire"
)

const (
	incChunk  = 8 // bytes of the chunks that aggregators add up
	incWindow = 8 // places that are in flight
)

// aggregator is one aggregator of the job.
type aggregator struct {
	clustertest.Untimed
	session  *inc.Session
	arrivals *clustertest.Queue[sumGram]
	dead     bool
}

func (a *aggregator) Done() bool     { return true }
func (a *aggregator) String() string { return fmt.Sprintf("aggregator: %+v", a.session.Stats()) }

// sumGram is a datagram to or from an aggregator.
type sumGram struct {
	opKey
	inc.Header
	payload []byte
}

// addAggregators adds a tree of aggregators: each serves three ranks, and the last is the parent of the others.
func (c *cluster) addAggregators(size int) {
	var text []string
	for first := 0; first < size; first += 3 {
		entry := fmt.Sprintf("a%d:1=%d", first, first)
		if last := min(first+3, size) - 1; last > first {
			entry += fmt.Sprintf("-%d", last)
		}
		if size > 3 {
			entry += ">top:1"
		}
		text = append(text, entry)
	}
	if size > 3 {
		text = append(text, "top:1")
	}
	var err error
	if c.tree, err = inc.ParseTree(strings.Join(text, ";"), size); err != nil {
		c.Failf("%v", err)
	}
	for i := range c.tree.Nodes {
		a := &aggregator{}
		at := c.Add(-1, a)
		a.arrivals = clustertest.NewQueue(c.Cluster, "contribution", at, -1, func(g sumGram) { c.aggregate(i, g) })
		c.sums = append(c.sums, a)
		c.restartAggregator(i)
	}
	c.tellAggregation(inc.Aggregation{Window: incWindow})
}

// restartAggregator makes an aggregator forget everything.
func (c *cluster) restartAggregator(i int) {
	c.sums[i].session = inc.NewSession(inc.SessionConfig{
		Tree: c.tree, Node: i, Window: incWindow, Chunk: incChunk, Token: incToken, Comms: 8,
		Add: func(dst, src []byte, _, _ uint8) error {
			clustertest.Sum(dst, src)
			return nil
		},
	})
	c.sums[i].dead = false
}

func incToken(comm, number uint32) uint64 { return uint64(comm)<<32 + uint64(number) + 7 }

// tellAggregation tells all living ranks the state of their aggregators.
func (c *cluster) tellAggregation(a inc.Aggregation) {
	for _, h := range c.hosts {
		if !h.Dead {
			h.node.SetAggregation(c.Now, a)
			h.act()
		}
	}
}

// aggregate hands a datagram to an aggregator.
func (c *cluster) aggregate(i int, g sumGram) {
	a := c.sums[i]
	if a.dead {
		return
	}
	f, ok := a.session.Contribute(&g.Header, g.payload)
	if !ok {
		return
	}
	out := sumGram{g.opKey, f.Header, slices.Clone(f.Payload)}
	switch f.Kind {
	case inc.Result:
		c.hosts[f.Owner].results.Push(out)
		return
	case inc.Want:
		c.hosts[c.tree.Nodes[i].Children[f.Child].Rank].results.Push(out)
		return
	}
	c.sums[c.tree.Nodes[i].Parent].arrivals.Push(out)
}

// gatherRounds plans the Allgather of an Allreduce.
func (c *cluster) gatherRounds(counts []int64) []*mcast.Geometry {
	s := allgather(len(counts), 0, incChunk)
	s.Counts, s.Chains = counts, len(counts)
	plan, err := mcast.Plan(s, c.cfg.Layout)
	if err != nil {
		c.Failf("%+v: %v", s, err)
	}
	return plan
}

// startReduction makes a call that aggregators reduce.
func (h *host) startReduction(s *share) error {
	j := s.job
	s.send = j.Input(s.rank)
	if clustertest.Poison(s.recv); j.spec.Size == 1 {
		copy(s.recv, s.send) // as every driver does
	}
	return h.node.StartReduction(h.c.Now, j.comm, j.req, &inc.Reduction{
		Kind: j.kind, Rank: s.rank, Size: j.spec.Size, Counts: j.spec.Counts, Chunk: incChunk, Tree: h.c.tree.Digest(),
	}, j.geos)
}

// openReduction checks that the reductions of a communicator run in order, one at a time.
func (h *host) openReduction(r *hostRound, a *Action) {
	number := uint32(0)
	for key, other := range h.rounds {
		if other == r || key.comm != a.Comm || other.red == nil {
			continue
		}
		if number++; other.state == isOpen || other.red.Number >= a.Number {
			h.c.Failf("rank %d opens reduction %d while %d is in state %d", h.ID, a.Number, other.red.Number, other.state)
		}
	}
	if number != a.Number || a.Record.Len() != a.Layout.Chunks(r.share.rank) {
		h.c.Failf("rank %d opens reduction %d, want %d; its record has %d chunks", h.ID, a.Number, number, a.Record.Len())
	}
	open := *a
	r.red = &open
}

// contribute sends contributions to the aggregator of this rank.
func (h *host) contribute(r *hostRound, a *Action) {
	c := h.c
	if a.Number != r.red.Number || a.N == 0 || a.PSN+a.N > r.red.Layout.Places() {
		c.Failf("rank %d contributes places %d+%d of reduction %d", h.ID, a.PSN, a.N, a.Number)
	}
	node, child := c.tree.Server(h.ID)
	for place := a.PSN; place < a.PSN+a.N; place++ {
		owner, _, off, n := r.red.Layout.At(place)
		if owner == r.share.rank {
			continue
		}
		kind := inc.Contribution
		if a.Offer {
			kind, n = inc.Offer, 0
		}
		c.sums[node].arrivals.Push(sumGram{opKey{a.Comm, a.Seq}, inc.Header{
			Kind: kind, Try: a.Try, Comm: a.Comm, Number: a.Number, Token: incToken(a.Comm, a.Number),
			Place: place, Owner: uint16(c.comms[a.Comm][owner]), Child: uint16(child),
		}, slices.Clone(r.share.send[off : off+n])})
	}
	h.node.Sent(c.Now, a.Comm, a.Seq, a.N)
}

// result is a sum that arrives at this rank, or the aggregator's answer to an offer.
func (h *host) result(g sumGram) {
	r := h.openRound(g.opKey)
	switch {
	case r == nil:
		return // it is late
	case g.Kind == inc.Want:
		h.node.Wanted(h.c.Now, g.comm, g.seq, g.Place, g.Try)
		return
	}
	owner, nth, off, n := r.red.Layout.At(g.Place)
	if owner != r.share.rank || n != int64(len(g.payload)) {
		h.c.Failf("rank %d gets place %d, which is rank %d's", h.ID, g.Place, owner)
	}
	if r.red.Record.Take(nth) {
		r.addSum(off, g.payload)
		r.red.Record.Finish(nth, 1)
		h.node.Summed(h.c.Now, g.comm, g.seq)
	}
}

// addSum puts the sum of all other ranks and of this rank in place.
func (r *hostRound) addSum(off int64, sum []byte) {
	dst := r.share.recv[off : off+int64(len(sum))]
	copy(dst, sum)
	clustertest.Sum(dst, r.share.send[off:off+int64(len(sum))])
}

// fetched is a fetch whose chunks are claimed.
type fetched struct {
	Action
	chunks []uint32
}

// fetch claims chunks.
func (h *host) fetch(a Action) {
	r := h.openRound(opKey{a.Comm, a.Seq})
	if r == nil {
		return // it failed meanwhile
	}
	f := fetched{Action: a}
	r.red.Record.Claim(a.PSN, a.N, func(i, n uint32) {
		for ; n > 0; n-- {
			f.chunks = append(f.chunks, i)
			i++
		}
	})
	h.served.Push(f)
}

// fetched reads the inputs of all ranks and adds them up.
func (h *host) fetched(f fetched) {
	c, key := h.c, opKey{f.Comm, f.Seq}
	r := h.openRound(key)
	if r == nil {
		return
	}
	members := c.comms[f.Comm]
	for _, nth := range f.chunks {
		_, _, off, n := r.red.Layout.At(r.red.Layout.Place(r.share.rank, nth))
		sum := make([]byte, n)
		refused := false
		c.tree.Combine(sum, h.ID, make([]byte, c.tree.Depth()*int(n)), func(world int) []byte {
			peer := c.hosts[world].openRound(key)
			if peer == nil || c.hosts[world].Dead {
				refused = true
				return sum
			}
			return peer.share.send[off : off+n]
		}, clustertest.Sum)
		if refused {
			if !c.hurt {
				c.Failf("rank %d fetches from ranks %v in operation %d, but a buffer is free", h.ID, members, f.Seq)
			}
			return // the failure of this rank is on its way
		}
		r.addSum(off, sum)
		r.red.Record.Finish(nth, 1)
	}
	h.node.Fetched(c.Now, f.Comm, f.Seq, f.PSN, f.N)
}

// fellBack counts the ranks on which aggregators did not make all sums of a job.
func (j *job) fellBack() (n int) {
	for _, s := range j.shares {
		if s.fallback != "" {
			n++
		}
	}
	return n
}

// reduceScatter plans a reduction by aggregators.
func (c *cluster) reduceScatter(comm uint32, block int64) *job {
	return c.plan(comm, wire.ReduceScatter, "inc", block)
}
