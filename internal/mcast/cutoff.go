package mcast

import (
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// cutoff is the timer after which missing chunks count as lost.
type cutoff struct {
	since step.Time // time of the last sign of progress, or of the last cutoff
	idle  int       // cutoffs since the last progress
	taken uint64    // pool's taken count when the Collective last learned of arrived or sent chunks
}

// cutoffAt returns the time at which the missing chunks count as lost: N/B + alpha after the last
// sign of progress, where N is the size of the missing chunks. It moves with progress, because a
// pause for credit or a late activation is not a loss. It backs off without progress. The cutoff is
// earlier once everything is known to have been sent. That message took at least as long as the last
// datagrams needed. Only chunks that may be in transit at the same time are worth waiting for.
func (o *Collective) cutoffAt() step.Time {
	missing := o.count.missing
	if missing == 0 || (o.phase != step.Multicast && o.phase != step.Fetch) || missing == o.fetch.asked() {
		return step.Never
	}
	slack := o.cfg.Est.Slack(o.wireSize(uint64(missing)))
	if o.tree.allSent {
		inTransit := uint64(missing)
		if o.cfg.Pool != nil {
			inTransit = min(inTransit, o.cfg.Pool.size)
		}
		slack = o.cfg.Est.Transit(o.wireSize(inTransit))
	}
	return o.cut.since + slack<<min(o.cut.idle, 20)
}

// Queued records that datagrams wait to be received. That counts as progress, and the datagrams may
// contain chunks that were announced as sent. It stops counting when the workers have taken as many
// datagrams as the queue holds since the Collective last made progress or learned of sent chunks.
// The waiting datagrams then belong to other operations, and that may last for ever.
func (o *Collective) Queued(now step.Time) {
	if p := o.cfg.Pool; o.cr.on && p.taken.Count()-o.cut.taken >= p.size {
		return
	}
	o.cut.since = max(o.cut.since, now)
	if c := &o.cr; c.announced {
		c.announcedAt = max(c.announcedAt, now)
	}
}

// recordProgress records that chunks have arrived, or that all have been sent.
func (o *Collective) recordProgress(now step.Time) {
	o.cut.since = max(o.cut.since, now)
	o.recordNews()
}

// recordNews records that the Collective has learned of arrived or sent chunks: there may be
// something to fetch now.
func (o *Collective) recordNews() {
	o.cut.idle = 0
	if o.cr.on {
		o.cut.taken = o.cfg.Pool.taken.Count()
	}
}

// handleCutoff asks the left neighbour for every chunk that was sent but has not arrived.
func (o *Collective) handleCutoff(now step.Time, out []step.Action) []step.Action {
	o.cut.since = now
	o.cut.idle++
	for t := range o.arrived {
		out = o.sendRanges(out, o.left, wire.MsgFetch, t, o.fetch.streams[t].request(o.arrived[t].sent))
	}
	if o.phase == step.Multicast && o.fetch.asked() > 0 {
		o.phase, o.times.Fetch, o.fetch.askedAt = step.Fetch, now, now
	}
	return out
}
