package sim

import (
	"fmt"

	"github.com/allcast/allcast/internal/protocol"
)

// result gathers what a run of one collective measured.
func (w *world) result(c *collective) *Result {
	r := &Result{
		Op: w.cfg.Op, Algo: w.cfg.Algo, Nodes: w.g.Hosts, Topology: w.g.Name, Bytes: w.cfg.Bytes, Seed: w.cfg.Seed,
		Chunk: c.chunk, Flow: w.cfg.Flow,
		MaxCrossings: w.crossings.most, RootFetches: w.rootFetches, MaxOwnerReads: w.maxOwnerReads,
		DroppedChunks: w.dropped, Events: w.events, Errors: []RankError{},
	}
	if c.plan != nil {
		r.Chains, r.Subgroups = max(1, c.plan[0].Chains()), c.plan[0].Subgroups()
	}
	for i := range w.links {
		r.LinkBytes += w.links[i].bytes
		r.PayloadLinkBytes += w.links[i].payload
	}
	r.LinkBytesBound = c.total() * int64(w.trees[0].Links(0))
	if c.kind == protocol.Allreduce {
		r.LinkBytesBound *= 2 // up and down
	}
	for _, h := range w.hosts {
		r.SentBytes = max(r.SentBytes, h.sent)
		s := h.node.Stats()
		r.DuplicateChunks += int64(s.Duplicates)
		r.RepairedChunks += int64(s.Repaired)
		r.LateChunks += int64(s.Late)
	}
	w.bound(r, c)
	w.outcomes(r, c)
	return r
}

// bound is the least time possible: what the busiest host port has to carry,
// headers included, and the latency of one path.
func (w *world) bound(r *Result, c *collective) {
	var all, most int64
	least := int64(-1)
	for i, n := range c.counts {
		chunks := int64(c.cells[i+1] - c.cells[i])
		wire := n + chunks*udHeader
		all += wire
		most = max(most, wire)
		if least < 0 || wire < least {
			least = wire
		}
		r.ChunksTotal += chunks * int64(len(c.counts)-1)
	}
	if len(c.counts) == 1 {
		return
	}
	port := max(most, all-least) // sending, or receiving what the others send; for a reduction the other way round
	if c.kind == protocol.Allreduce && w.cfg.Algo != "inc" {
		port = 2 * all * int64(len(c.counts)-1) / int64(len(c.counts))
	}
	r.BoundUS = float64(port)*8e6/w.cfg.Rate + float64(w.longestPath())/1e6
}

func (w *world) outcomes(r *Result, c *collective) {
	last := -1
	intact := true
	for i, o := range c.ranks {
		switch {
		case w.hosts[c.members[i]].dead && !o.ended: // it cannot say
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
		if o.ended {
			intact = intact && c.mem[i].intact()
			if last < 0 || o.at > c.ranks[last].at {
				last = i
			}
		}
	}
	if last >= 0 {
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
	if w.broken == "" && !intact {
		w.broken = "a buffer was written after it was free"
	}
	if w.broken == "" && w.failures == 0 && w.lingering > 0 {
		w.broken = "operations lingered for ever"
	}
	r.Violation = w.broken
	r.Verified = w.wrong == 0 && w.broken == "" && len(r.Errors) == 0
	r.Wrong = w.wrong
}
