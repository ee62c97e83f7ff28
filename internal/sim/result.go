package sim

import (
	"fmt"

	"github.com/allcast/allcast/internal/wire"
)

// result collects the measurements of a run. With several concurrent collectives, times are those of
// the last to end, and counts per chunk are left out.
func (w *world) result(calls []*collective) *Result {
	c := calls[0]
	r := &Result{
		Op: w.cfg.Op, Algo: w.cfg.Algo, Nodes: w.g.Hosts, Topology: w.g.Name, Bytes: w.cfg.Bytes, Seed: w.cfg.Seed,
		Chunk: c.chunk, Flow: w.cfg.Flow, Datapath: w.cfg.Datapath, Auto: w.cfg.reason,
		RootFetches: w.rootFetches, MaxOwnerReads: w.maxOwnerReads,
		DroppedChunks: w.dropped, Events: w.events, Verified: true, Errors: []RankError{},
	}
	if w.crossings != nil {
		r.MaxCrossings = w.crossings.maxCount
	}
	if c.plan != nil {
		r.Chains, r.Subgroups = max(1, c.plan[0].Chains()), c.plan[0].Subgroups()
	}
	r.ByLink, r.PayloadByLink = make([]uint64, len(w.links)), make([]uint64, len(w.links))
	for i := range w.links {
		r.ByLink[i], r.PayloadByLink[i] = uint64(w.links[i].bytes), uint64(w.links[i].payload)
		r.LinkBytes += w.links[i].bytes
		r.PayloadLinkBytes += w.links[i].payload
	}
	for _, h := range w.hosts {
		r.SentBytes = max(r.SentBytes, h.sent)
		s := h.node.Stats()
		r.DuplicateChunks += int64(s.Duplicates)
		r.RepairedChunks += int64(s.Repaired)
		r.LateChunks += int64(s.Late)
	}
	var port int64
	for _, c := range calls {
		r.LinkBytesBound += w.minLinkBytes(c)
		r.ChunksTotal += c.toReceive()
		port = max(port, w.busiestPort(c))
		w.outcomes(r, c)
		if len(calls) > 1 {
			r.Parts = append(r.Parts, w.part(c))
		}
	}
	if w.lastArrival > 0 {
		r.RecoveryUS = max(0, r.TimeUS-float64(w.lastArrival)/1e6)
	}
	if len(calls) == 2 {
		port = w.busiestPortOfBoth(calls[0], calls[1])
	}
	if w.g.Hosts > 1 {
		r.BoundUS = float64(port)*8e6/w.cfg.Rate + float64(w.longestPath())/1e6
	}
	return r
}

func (w *world) minLinkBytes(c *collective) int64 {
	n := c.total() * int64(w.trees[0].Links(0))
	if c.kind == wire.Allreduce {
		n *= 2 // up and down
	}
	return n
}

// toReceive returns the number of chunks that all ranks together have to receive.
func (c *collective) toReceive() int64 {
	chunks, p := int64(c.cells[len(c.counts)]), int64(len(c.members))
	inc := c.plan == nil && c.p2p == nil
	switch {
	case p == 1:
		return 0
	case inc && c.kind == wire.ReduceScatter:
		return chunks // each rank receives its own block
	case inc:
		return chunks * p
	case c.kind == wire.Allreduce:
		return 2 * chunks * (p - 1) // once to add, once as the result
	}
	return chunks * (p - 1)
}

// header returns the header size of the packets of a collective's payload.
func (w *world) header(c *collective) int64 {
	if c.plan != nil {
		return udHeader
	}
	return putHeader
}

// part describes one of several collectives.
func (w *world) part(c *collective) Part {
	p := Part{Op: c.kind.String()}
	for i, o := range c.ranks {
		p.TimeUS = max(p.TimeUS, float64(o.at)/1e6)
		p.Sent = max(p.Sent, c.sent[i])
		p.Received = max(p.Received, c.received[i])
	}
	return p
}

// wire returns the size of a block on a link, including headers.
func (w *world) wire(c *collective, block int) int64 {
	return c.counts[block] + int64(c.cells[block+1]-c.cells[block])*w.header(c)
}

// busiestPortOfBoth returns the load of the busiest host port with a concurrent Allgather and
// Reduce-Scatter: one sends as much as the other receives.
func (w *world) busiestPortOfBoth(gather, scatter *collective) (port int64) {
	var gathered, scattered int64
	for i := range gather.counts {
		gathered += w.wire(gather, i)
		scattered += w.wire(scatter, i)
	}
	for i := range gather.counts {
		g, s := w.wire(gather, i), w.wire(scatter, i)
		port = max(port, g+scattered-s, gathered-g+s)
	}
	return port
}

// busiestPort returns the load of the busiest host port, including headers, for any algorithm. It
// bounds the time from below.
func (w *world) busiestPort(c *collective) int64 {
	var all, largest int64
	smallest := int64(-1)
	for i := range c.counts {
		wire := w.wire(c, i)
		all += wire
		largest = max(largest, wire)
		if smallest < 0 || wire < smallest {
			smallest = wire
		}
	}
	if c.kind == wire.Allreduce && w.cfg.Algo != "inc" {
		return 2 * all * int64(len(c.counts)-1) / int64(len(c.counts))
	}
	return max(largest, all-smallest) // sends, or receives from the others; the reverse for a reduction
}

func (w *world) outcomes(r *Result, c *collective) {
	last := -1
	intact := true
	for i, o := range c.ranks {
		switch {
		case w.hosts[c.members[i]].dead && !o.ended: // a dead host reports nothing
		case !o.ended:
			r.Errors = append(r.Errors, RankError{
				Rank: i, Culprit: -1, Op: w.cfg.Op, Phase: "unknown", Missing: "unknown",
				Reason: fmt.Sprintf("still running after %d s", w.now/1e12),
			})
		case o.err != nil:
			r.Errors = append(r.Errors, RankError{
				Rank: i, Culprit: o.err.Culprit, Op: o.err.Op.String(), Phase: o.err.Phase.String(),
				Missing: o.err.Missing, Reason: o.err.Reason.String(),
			})
		}
		r.CutoffUS = max(r.CutoffUS, float64(o.spent.Cutoff)/1e3)
		if o.ended {
			intact = intact && c.mem[i].intact()
			if last < 0 || o.at > c.ranks[last].at {
				last = i
			}
		}
	}
	if last >= 0 && float64(c.ranks[last].at)/1e6 > r.TimeUS {
		o := c.ranks[last]
		r.TimeUS = float64(o.at) / 1e6
		us := func(t int64) float64 { return float64(t) / 1e3 }
		r.Phases = Phases{
			Barrier: us(int64(o.spent.Barrier)), Multicast: us(int64(o.spent.Multicast)),
			Fetch: us(int64(o.spent.Fetch)), Handshake: us(int64(o.spent.Handshake)),
		}
		if c.plan == nil {
			r.Phases = Phases{Transfer: us(int64(o.spent.Multicast))}
		}
	}
	if w.violation == "" && !intact {
		w.violation = "a buffer was written after it was free"
	}
	if w.violation == "" && w.failures == 0 && w.lingering > 0 {
		w.violation = "operations lingered for ever"
	}
	r.Violation = w.violation
	r.Verified = r.Verified && w.wrong == 0 && w.violation == "" && len(r.Errors) == 0
	r.Wrong = w.wrong
}
