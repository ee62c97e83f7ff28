package sim

// The two communicators of a step. Each runs one collective at a time, like a stream of a common
// library. Both run concurrently.
const (
	gather = iota
	scatter
	comms
)

// trainingStep drives all ranks through forward and backward. A step uses layers 2L times: 0 to L-1
// forward, then L-1 down to 0. The last forward layer is still present when backward starts, so use L
// needs no Allgather.
type trainingStep struct {
	w        *world
	parts    []part
	members  []int
	layers   int
	prefetch int
	forward  int64 // forward time of a layer in ps
	ranks    []rankStep
	calls    [comms][]*collective // in call order; nil before the first rank calls
	retire   []*collective        // ended collectives, indexed by evStep
	complete int                  // collectives that completed on all ranks
	spans    []Span               // timeline of rank 0
}

// rankStep is the progress of one rank.
type rankStep struct {
	use       int // use being computed or waited for
	computing bool
	since     int64        // start of the compute or of the wait
	started   [comms]int   // number of collectives called
	completed [comms]int   // number of collectives completed
	called    [comms]int64 // time of the last call
	busy      [comms]int64 // time with a collective in flight

	waited     int64 // time spent waiting for parameters
	forwardEnd int64 // time when forward ended
	computed   int64 // time when the last compute ended
	ended      int64
	over, lost bool
}

func newTrainingStep(w *world, cfg *FSDPConfig, parts []part) *trainingStep {
	s := &trainingStep{
		w: w, parts: parts, layers: cfg.Layers, prefetch: cfg.Prefetch, forward: cfg.Compute.Nanoseconds() * 1000,
		members: allHosts(w.g.Hosts), ranks: make([]rankStep, w.g.Hosts),
	}
	s.calls[gather] = make([]*collective, 2*s.layers-1)
	s.calls[scatter] = make([]*collective, s.layers)
	return s
}

// layer returns the layer of a use.
func (s *trainingStep) layer(use int) int {
	if use < s.layers {
		return use
	}
	return 2*s.layers - 1 - use
}

// useOf returns the first use that needs the nth Allgather.
func (s *trainingStep) useOf(nth int) int {
	if nth < s.layers {
		return nth
	}
	return nth + 1
}

// needs returns the number of Allgathers that must complete before a use.
func (s *trainingStep) needs(use int) int {
	if use < s.layers {
		return use + 1
	}
	return use
}

// advance starts everything that a rank can start.
func (s *trainingStep) advance(rank int) {
	r, w := &s.ranks[rank], s.w
	if r.over || r.lost {
		return
	}
	if r.use < 2*s.layers && !r.computing && r.completed[gather] >= s.needs(r.use) {
		r.waited += w.now - r.since
		r.computing, r.since = true, w.now
		d := s.forward
		if r.use >= s.layers {
			d *= 2
		}
		w.push(w.now+d, evStep, int32(rank), nil)
	}
	if n := r.started[gather]; n == r.completed[gather] && n < len(s.calls[gather]) && s.useOf(n) <= r.use+s.prefetch {
		s.call(rank, gather)
	}
	if n := r.started[scatter]; n == r.completed[scatter] && n < r.use-s.layers {
		s.call(rank, scatter)
	}
	if r.use == 2*s.layers && r.completed[scatter] == s.layers {
		r.over, r.ended = true, w.now
		w.pending--
	}
}

// handleEvent handles evStep: a rank has computed a layer, or a collective can be removed.
func (s *trainingStep) handleEvent(id int) {
	if id >= len(s.ranks) {
		s.drop(s.retire[id-len(s.ranks)])
		return
	}
	r, now := &s.ranks[id], s.w.now
	s.recordSpan(id, "compute", r.use, r.since)
	r.use++
	r.computing, r.since = false, now
	if r.use == s.layers {
		r.forwardEnd = now
	}
	r.computed = now
	s.advance(id)
}

// callReturned handles the end of a rank's call. Its consequences are separate events, because the
// node is still executing its actions.
func (s *trainingStep) callReturned(rank int, c *collective) {
	r, on := &s.ranks[rank], int(c.comm)
	if c.ended == len(s.members) {
		s.finish(c)
	}
	if c.ranks[rank].err != nil {
		if !r.lost && !r.over {
			r.lost = true
			s.w.pending--
		}
		return
	}
	use := s.useOf(r.completed[on])
	if c.scatters {
		use = s.layers + r.completed[on]
	}
	s.recordSpan(rank, c.kind.String(), use, r.called[on])
	r.completed[on]++
	r.busy[on] += s.w.now - r.called[on]
	s.advance(rank)
}

func (s *trainingStep) recordSpan(rank int, kind string, use int, from int64) {
	if rank == 0 {
		s.spans = append(s.spans, Span{
			Kind: kind, Layer: s.layer(use), Backward: use >= s.layers,
			Start: microseconds(from), End: microseconds(s.w.now),
		})
	}
}
