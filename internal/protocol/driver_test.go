package protocol

// Chunk takes one datagram as a driver without queues does: it decides, places and reports at once.
func (o *Op) Chunk(now Time, sub int, psn uint32, length int, out []Action) (int64, Verdict, []Action) {
	if o.phase < Barrier || o.phase >= Closed || sub >= len(o.arrived) {
		return 0, Foreign, out
	}
	p := o.arrived[sub].Placement
	off, v := p.judge(psn, length)
	if o.cfg.Pool != nil {
		o.cfg.Pool.taken.Add(1)
	}
	switch v {
	case Placed:
		p.Finish(psn, 1)
		return off, v, o.Placed(now, sub, Range{psn, 1}, out)
	case Late:
		o.cfg.Est.Late(now)
	}
	return 0, v, out
}

// claim claims the chunks of a read.
func (o *Op) claim(a *Action) (won []Range) {
	var in Intake
	won, _ = in.Claim(o.arrived[a.Sub].Placement, a.Ranges, nil)
	return won
}

// readDone is the end of a read whose claim won these chunks.
func (o *Op) readDone(now Time, sub int, won []Range) []Action {
	for _, q := range won {
		o.arrived[sub].Finish(q.PSN, q.N)
	}
	return o.Step(now, Event{Kind: EvRead, Sub: sub, Ranges: won}, nil)
}
