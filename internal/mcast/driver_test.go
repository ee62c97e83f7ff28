package mcast

import (
	"sync"

	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Chunk takes one datagram as a driver without queues does: it judges, places and reports at once.
func (o *Collective) Chunk(
	now step.Time, sub int, psn uint32, length int, out []step.Action,
) (int64, Verdict, []step.Action) {
	if o.phase < step.Barrier || o.phase >= step.Closed || sub >= len(o.arrived) {
		return 0, Foreign, out
	}
	p := o.arrived[sub].Placement
	off, v := p.judge(psn, length)
	if o.cfg.Pool != nil {
		countTaken(o.cfg.Pool.taken)
	}
	switch v {
	case Placed:
		p.Finish(psn, 1)
		return off, v, o.Placed(now, sub, wire.Range{PSN: psn, N: 1}, out)
	case Late:
		o.cfg.Est.Late(now)
	}
	return 0, v, out
}

// takenCounts holds the count of the only worker of a driver without queues.
var takenCounts sync.Map

func countTaken(t *place.Taken) {
	c, known := takenCounts.Load(t)
	if !known {
		c = t.New()
		takenCounts.Store(t, c)
	}
	c.(*place.Count).Add(1)
}

// claim claims the chunks of a read.
func (o *Collective) claim(a *step.Action) (won []wire.Range) {
	var in Intake
	won, _ = in.Claim(o.arrived[a.Stream].Placement, a.Ranges, nil)
	return won
}

// readDone is the end of a read whose claim won these chunks.
func (o *Collective) readDone(now step.Time, sub int, won []wire.Range) []step.Action {
	for _, q := range won {
		o.arrived[sub].Finish(q.PSN, q.N)
	}
	return o.Step(now, step.Event{Kind: step.EvRead, Stream: sub, Ranges: won}, nil)
}
