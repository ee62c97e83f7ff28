package sim

// call makes a rank's next call on a communicator. The first rank that calls creates the buffers of all
// ranks, so only a few collectives' buffers exist at a time.
func (s *trainingStep) call(rank, on int) {
	w, r := s.w, &s.ranks[rank]
	nth := r.started[on]
	c := s.calls[on][nth]
	if c == nil {
		var err error
		if c, err = w.collective(uint64(nth*comms+on+1), s.parts[on], s.members); err != nil {
			w.violate("no collective %d: %v", nth, err) // the first collective could be created, and all are alike
			return
		}
		c.comm = uint32(on)
		s.calls[on][nth], w.calls[c.req] = c, c
	}
	r.started[on]++
	r.called[on] = w.now
	w.callAt(w.now, rank, c)
}

// finish schedules the removal of a collective that has ended on all ranks, for when none of its
// packets can be left in the network.
func (s *trainingStep) finish(c *collective) {
	if !c.failed {
		s.complete++
	}
	s.retire = append(s.retire, c)
	s.w.push(s.w.now+s.w.lifetime+32*s.w.slotTime, evStep, int32(len(s.ranks)+len(s.retire)-1), nil)
}

// drop checks for the last time that nothing wrote to freed buffers, and forgets the collective.
func (s *trainingStep) drop(c *collective) {
	w := s.w
	if c.mem == nil {
		return
	}
	for i, m := range c.mem {
		if !m.intact() {
			w.violate("a buffer of rank %d was written after it was free", i)
		}
	}
	delete(w.calls, c.req)
	*c = collective{outcomes: c.outcomes}
}

// result collects the measurements of the step.
func (s *trainingStep) result(cfg *FSDPConfig) *FSDPResult {
	w := s.w
	for _, c := range s.retire {
		s.drop(c)
	}
	out := &FSDPResult{
		Subject: cfg.subject(),
		Layers:  s.layers, LayerBytes: cfg.LayerBytes, ShardBytes: cfg.Bytes, Prefetch: s.prefetch,
		Chunk: cfg.Chunk, Segment: cfg.Segment, Collectives: s.complete,
		Events: w.events, Seed: cfg.Seed, Errors: []RankError{}, Timeline: s.spans,
	}
	out.Op = "fsdp"
	for _, l := range w.links[:len(w.g.Links)] {
		out.BackgroundBytes += l.foreign
	}
	last := 0
	for i := range s.ranks {
		if s.ranks[i].ended > s.ranks[last].ended {
			last = i
		}
		if !s.ranks[i].over {
			out.Errors = append(out.Errors, s.failure(i))
		}
		up := w.g.HostUp(i)
		out.SentBytes = max(out.SentBytes, w.links[up].bytes)
		out.ReceivedBytes = max(out.ReceivedBytes, w.links[w.g.Reverse(up)].bytes)
		out.RepairedChunks += int64(w.hosts[i].node.Stats().Repaired)
	}
	if w.lingering > 0 && w.failures == 0 {
		w.violate("operations lingered for ever")
	}
	out.Verdict = w.verdict(len(out.Errors) == 0 && s.complete == len(s.calls[gather])+len(s.calls[scatter]))
	if r := &s.ranks[last]; r.over {
		out.StepTimes = s.times(r)
	}
	return out
}

func (s *trainingStep) times(r *rankStep) StepTimes {
	compute := 3 * int64(s.layers) * s.forward
	t := StepTimes{
		StepUS: microseconds(r.ended), ComputeUS: microseconds(compute), BackwardUS: microseconds(r.ended - r.forwardEnd),
		ExposedAllgatherUS: microseconds(r.waited), ExposedReduceScatterUS: microseconds(r.ended - r.computed),
		AllgatherUS: microseconds(r.busy[gather]), ReduceScatterUS: microseconds(r.busy[scatter]),
	}
	if r.ended > 0 {
		t.BubblePct = 100 * float64(r.ended-compute) / float64(r.ended)
	}
	return t
}

// failure describes what a rank was doing that did not end its step.
func (s *trainingStep) failure(rank int) RankError {
	for _, calls := range s.calls {
		for _, c := range calls {
			if c != nil && c.ranks[rank].err != nil {
				return rankError(rank, c.ranks[rank].err)
			}
		}
	}
	return RankError{
		Rank: rank, Culprit: -1, Op: "fsdp", Phase: "unknown", Missing: "unknown", Reason: "the step never ended",
	}
}
