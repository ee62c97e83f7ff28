package sim

import "github.com/allcast/allcast/internal/wire"

// The two communicators of a step: each is a queue that runs one collective at a
// time, as a stream of today's libraries does, and both run at once.
const (
	gather = iota
	scatter
	comms
)

// trainingStep drives all ranks through forward and backward. A step uses layers
// 2L times: 0 to L-1 forward, then L-1 down to 0. The last forward layer is still
// there when backward begins, so use L needs no Allgather.
type trainingStep struct {
	w        *world
	parts    []part
	members  []int
	layers   int
	prefetch int
	forward  int64 // of a layer, ps
	ranks    []rankStep
	calls    [comms][]*collective // by call order; nil: not called yet
	retire   []*collective        // by event
	complete int                  // collectives that ended well on all ranks
	spans    []Span               // of rank 0
}

// rankStep is where one rank is.
type rankStep struct {
	use       int // being computed or waited for
	computing bool
	since     int64      // it began, or the wait for it did
	asked     [comms]int // collectives called
	had       [comms]int // and completed
	called    [comms]int64
	busy      [comms]int64 // time with one under way

	waited     int64 // for parameters
	turned     int64 // when forward ended
	computed   int64 // when the last compute ended
	ended      int64
	over, lost bool
}

func newTrainingStep(w *world, cfg *FSDPConfig, parts []part) *trainingStep {
	s := &trainingStep{
		w: w, parts: parts, layers: cfg.Layers, prefetch: cfg.Prefetch, forward: cfg.Compute.Nanoseconds() * 1000,
		members: everybody(w.g.Hosts), ranks: make([]rankStep, w.g.Hosts),
	}
	s.calls[gather] = make([]*collective, 2*s.layers-1)
	s.calls[scatter] = make([]*collective, s.layers)
	return s
}

// layer is which layer a use is of.
func (s *trainingStep) layer(use int) int {
	if use < s.layers {
		return use
	}
	return 2*s.layers - 1 - use
}

// useOf is the first use that needs the nth Allgather.
func (s *trainingStep) useOf(nth int) int {
	if nth < s.layers {
		return nth
	}
	return nth + 1
}

// needs is how many Allgathers must have completed before a use.
func (s *trainingStep) needs(use int) int {
	if use < s.layers {
		return use + 1
	}
	return use
}

// advance starts whatever a rank can start.
func (s *trainingStep) advance(rank int) {
	r, w := &s.ranks[rank], s.w
	if r.over || r.lost {
		return
	}
	if r.use < 2*s.layers && !r.computing && r.had[gather] >= s.needs(r.use) {
		r.waited += w.now - r.since
		r.computing, r.since = true, w.now
		d := s.forward
		if r.use >= s.layers {
			d *= 2
		}
		w.push(w.now+d, evStep, int32(rank), nil)
	}
	if n := r.asked[gather]; n == r.had[gather] && n < len(s.calls[gather]) && s.useOf(n) <= r.use+s.prefetch {
		s.call(rank, gather)
	}
	if n := r.asked[scatter]; n == r.had[scatter] && n < r.use-s.layers {
		s.call(rank, scatter)
	}
	if r.use == 2*s.layers && r.had[scatter] == s.layers {
		r.over, r.ended = true, w.now
		w.pending--
	}
}

// happened is evStep: a rank has computed a layer, or a collective is to be retired.
func (s *trainingStep) happened(id int) {
	if id >= len(s.ranks) {
		s.drop(s.retire[id-len(s.ranks)])
		return
	}
	r, now := &s.ranks[id], s.w.now
	s.note(id, "compute", r.use, r.since)
	r.use++
	r.computing, r.since = false, now
	if r.use == s.layers {
		r.turned = now
	}
	r.computed = now
	s.advance(id)
}

// returned is the end of a rank's call. What follows from it are events of their
// own: the node is in the middle of telling us.
func (s *trainingStep) returned(rank int, c *collective) {
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
	use := s.useOf(r.had[on])
	if c.kind == wire.ReduceScatter {
		use = s.layers + r.had[on]
	}
	s.note(rank, c.kind.String(), use, r.called[on])
	r.had[on]++
	r.busy[on] += s.w.now - r.called[on]
	s.advance(rank)
}

func (s *trainingStep) note(rank int, kind string, use int, from int64) {
	if rank == 0 {
		s.spans = append(s.spans, Span{
			Kind: kind, Layer: s.layer(use), Backward: use >= s.layers,
			Start: float64(from) / 1e6, End: float64(s.w.now) / 1e6,
		})
	}
}
