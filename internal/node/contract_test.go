package node

import (
	"slices"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// roundState says who may touch the buffers of a round.
type roundState uint8

const (
	isOpen   roundState = iota // the fabric
	released                   // the user, or the next round
	revoked                    // no one, but the node was not told yet
	quiet                      // the user
)

// round is one round of a call on one rank.
type hostRound struct {
	share   *share
	geo     *mcast.Geometry // of a multicast round
	in      *p2p.Inbox      // of a point-to-point round
	red     *Action         // Open of a reduction
	state   roundState
	took    step.Time // until released: when it was opened; after that: how long it was open
	opened  bool
	closed  bool
	drained bool

	placements []*mcast.Placement // by subgroup
	left       map[[2]uint32]bool // subgroup and PSN of the chunks that were multicast
	copied     []byte             // of an eager multicast: this rank's block until the round closes, never nil
}

// act carries out the actions of the node, and holds it to its contract.
func (h *host) act() (acted bool) {
	for acts := h.node.Actions(); len(acts) > 0; acts = h.node.Actions() {
		acted = true
		for i := range acts {
			h.do(&acts[i])
		}
	}
	h.timerAt = h.node.NextTimer()
	return acted
}

func (h *host) do(a *Action) {
	c, key := h.c, opKey{a.Comm, a.Seq}
	if h.doMail(a) {
		return
	}
	switch a.Kind {
	case Send:
		if a.To == h.ID || a.To < 0 || a.To >= len(c.hosts) || slices.Contains(h.lost, a.To) {
			c.Failf("rank %d sends kind %d to %d; it has lost %v", h.ID, a.Msg.Kind, a.To, h.lost)
		}
		h.sends[a.Msg.Kind]++
		c.hosts[a.To].inbox[h.ID].Push(wire.AppendMsg(nil, &a.Msg))
	case Open:
		h.open(a)
	case Multicast:
		h.multicast(a)
	case Read:
		members := c.comms[a.Comm]
		if h.rounds[key].copied == nil && members[(slices.Index(members, h.ID)+len(members)-1)%len(members)] != a.To {
			c.Failf("rank %d reads from %d, which is not its left neighbour", h.ID, a.To)
		}
		h.claims.Push(readRequest{key, a.To, a.Stream, a.Ranges})
	case Put, Contribute:
		h.roundOf(a, isOpen)
		h.puts.Push(*a)
	case Fetch:
		h.roundOf(a, isOpen)
		h.fetches.Push(*a)
	case Release:
		r := h.endRound(a, released)
		r.took = c.Now - r.took
		if r.share.plan != nil {
			copyWithin(r.share.recv, r.share.plan.After)
		}
	case Quiesce:
		c.hurt = true
		h.endRound(a, revoked)
		h.quiet.Push(key)
	case Closed:
		r := h.roundOf(a, released)
		if r.closed {
			c.Failf("rank %d closes operation %d of communicator %d twice", h.ID, a.Seq, a.Comm)
		}
		r.closed, r.copied = true, nil
		h.drains.Push(key)
	case Done:
		h.done(a)
	case Drop:
		if a.To == h.ID || slices.Contains(h.lost, a.To) {
			c.Failf("rank %d drops rank %d; it has lost %v", h.ID, a.To, h.lost)
		}
		if victim := c.hosts[a.To]; !victim.Dead && !victim.late {
			c.Failf("rank %d takes rank %d for lost, which lives", h.ID, a.To)
		}
		h.lost = append(h.lost, a.To)
	case Settled:
		h.agreed(a)
	case Removed:
		if h.node.comms[a.Comm] != nil {
			c.Failf("rank %d: communicator %d is removed and still there", h.ID, a.Comm)
		}
		h.removed = append(h.removed, a.Comm)
	default:
		c.Failf("rank %d: unknown action %d", h.ID, a.Kind)
	}
}

// roundOf finds the round of an action, which must be in a given state.
func (h *host) roundOf(a *Action, want roundState) *hostRound {
	r := h.rounds[opKey{a.Comm, a.Seq}]
	if r == nil || r.state != want {
		h.c.Failf("rank %d: action %d for operation %d of communicator %d, which is not in state %d: %+v",
			h.ID, a.Kind, a.Seq, a.Comm, want, r)
	}
	return r
}

// endRound takes the buffers of a round away from the fabric.
func (h *host) endRound(a *Action, state roundState) *hostRound {
	r := h.roundOf(a, isOpen)
	r.state = state
	h.workers.close(r.placements)
	if r.in != nil {
		h.node.Foreign(r.in.Foreign())
	}
	return r
}

// shareOf finds the share of an action among those that have not ended.
func (h *host) shareOf(a *Action) (s *share, at int) {
	shares := h.shares[a.Comm]
	if at = slices.IndexFunc(shares, func(s *share) bool { return s.job.req == a.Req }); at < 0 {
		h.c.Failf("rank %d: action %d for request %d, which is not under way: %v", h.ID, a.Kind, a.Req, a.Err)
	}
	return shares[at], at
}

// open checks the identity of a round, that its slot is free, that the round before it is over, and that
// only the oldest calls run.
func (h *host) open(a *Action) {
	c, key := h.c, opKey{a.Comm, a.Seq}
	s, at := h.shareOf(a)
	n := len(s.rounds)
	if at >= h.node.cfg.InFlight {
		c.Failf("rank %d opens a round of request %d, which is number %d of those that have not ended", h.ID, a.Req, at)
	}
	if a.Seq != s.seq+uint64(n) || n >= s.job.rounds() || a.Geometry != s.job.geometry(n) {
		c.Failf("rank %d opens operation %d for round %d of call %d", h.ID, a.Seq, n, s.seq)
	}
	if n > 0 && s.rounds[n-1].state != released {
		c.Failf("rank %d opens operation %d before the round before it is over", h.ID, a.Seq)
	}
	slot := opKey{a.Comm, uint64(c.cfg.Layout.Slot(a.Seq))}
	if r := h.inSlot[slot]; r != nil && !r.drained {
		c.Failf("rank %d opens operation %d in a slot that is not drained", h.ID, a.Seq)
	}
	r := &hostRound{
		share: s, geo: a.Geometry, in: a.Inbox, took: c.Now, left: map[[2]uint32]bool{}, placements: a.Placements,
	}
	if a.Eager {
		r.copied = append([]byte{}, s.send...)
	}
	h.inSlot[slot], h.rounds[key] = r, r
	s.rounds = append(s.rounds, r)
	h.waiting[a.Comm]++
	h.workers.open(a.Placements)
	if a.Reduction != nil {
		h.openReduction(r, a)
	}
	if r.geo != nil {
		h.opens.Push(key)
		return
	}
	h.opened(key)
	for _, p := range h.early[key] {
		h.recalls.Push(p)
	}
	delete(h.early, key)
}

func (h *host) multicast(a *Action) {
	c := h.c
	r := h.roundOf(a, isOpen)
	for psn := a.PSN; psn < a.PSN+a.N; psn++ {
		key := [2]uint32{uint32(a.Stream), psn}
		if r.left[key] || c.comms[a.Comm][r.geo.Owner(a.Stream, psn)] != h.ID {
			c.Failf("rank %d multicasts chunk %v twice, or it is not its own", h.ID, key)
		}
		r.left[key] = true
		h.nic.Push(datagram{
			opKey: opKey{a.Comm, a.Seq}, sub: a.Stream, psn: psn, imm: c.cfg.Layout.Imm(a.Seq, r.geo.Tag()|psn), eager: a.Eager,
		})
	}
}

// done checks that a call ends once, when nothing can touch its buffers any more, with the right data or
// with a complete error.
func (h *host) done(a *Action) {
	c := h.c
	s, at := h.shareOf(a)
	h.shares[a.Comm] = slices.Delete(h.shares[a.Comm], at, at+1)
	for i, r := range s.rounds {
		if r.state != released && r.state != quiet {
			c.Failf("rank %d: call %d ends, but its round %d is in state %d", h.ID, s.seq, i, r.state)
		}
	}
	s.ended, s.err, s.fallback = true, a.Err, a.Fallback
	c.ends = append(c.ends, end{h.ID, a.Req})
	if a.Err == nil {
		if n := len(s.rounds); n != s.job.rounds() {
			c.Failf("rank %d: call %d on communicator %d ends after %d of %d rounds", h.ID, s.seq, a.Comm, n, s.job.rounds())
		}
		if err := s.job.Check(s.rank, s.recv); err != nil {
			c.Failf("rank %d: call %d on communicator %d ends with wrong data: %v", h.ID, s.seq, a.Comm, err)
		}
		s.checkSpent(c, h.ID, &a.Spent)
	} else {
		c.hurt = true
		s.checkError(c, h.ID)
	}
	s.poison()
}

// checkSpent checks that the phases of a multicast call take as long as its rounds.
func (s *share) checkSpent(c *cluster, rank int, p *Spent) {
	rounds := step.Time(0)
	for _, r := range s.rounds {
		rounds += r.took
	}
	if s.job.geos == nil && s.job.algo != "inc" {
		return
	}
	if min(p.Barrier, p.Multicast, p.Fetch, p.Handshake) < 0 || p.Barrier+p.Multicast+p.Fetch+p.Handshake != rounds {
		c.Failf("rank %d, call %d: its rounds took %d, but it was %+v in its phases", rank, s.seq, rounds, *p)
	}
}

func (s *share) checkError(c *cluster, rank int) {
	e, phases := s.err, []step.Phase{step.Queued}
	if n := len(s.rounds); n > 0 && s.rounds[n-1].state == quiet && s.rounds[n-1].opened {
		if phases = []step.Phase{step.Transfer}; s.job.geos != nil || s.job.algo == "inc" {
			phases = []step.Phase{step.Barrier, step.Multicast, step.Transfer, step.Fetch, step.Handshake}
		}
	}
	if e.Comm != s.job.comm || e.Seq != s.seq || e.Op != s.job.kind || !slices.Contains(phases, e.Phase) ||
		e.Missing == "" || e.Reason < Lost || e.Reason > Cancelled || e.Culprit < NoRank || e.Culprit >= len(c.hosts) {
		c.Failf("rank %d, call %d on communicator %d: the error is wrong: %+v", rank, s.seq, s.job.comm, *e)
	}
}
