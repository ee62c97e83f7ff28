package node

import (
	"bytes"
	"slices"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// regionState is who may touch a round's buffers.
type regionState uint8

const (
	isOpen   regionState = iota // the fabric
	released                    // the user, or the next round
	revoked                     // nobody, but the node was not told yet
	quiet                       // the user
)

// region is one round on one rank.
type region struct {
	share   *share
	geo     *mcast.Geometry
	state   regionState
	took    step.Time // first when it was opened, then how long until its buffers were free
	opened  bool
	closed  bool
	drained bool
	// Where its chunks belong, by subgroup.
	placements []*mcast.Placement
	left       map[[2]uint32]bool // subgroup and PSN that were multicast
}

// act carries out what the node wants, and holds it to its contract.
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
	c := h.c
	switch a.Kind {
	case Send:
		if a.To == h.id || a.To < 0 || a.To >= len(c.hosts) || slices.Contains(h.lost, a.To) {
			c.t.Fatalf("rank %d sends kind %d to %d; it has lost %v", h.id, a.Msg.Kind, a.To, h.lost)
		}
		h.sends[a.Msg.Kind]++
		c.push(c.hosts[a.To].inbox[h.id], item{msg: wire.AppendMsg(nil, &a.Msg)})
	case Open:
		h.open(a)
	case Multicast:
		h.multicast(a)
	case Read:
		if members := c.comms[a.Comm]; members[(slices.Index(members, h.id)+len(members)-1)%len(members)] != a.To {
			c.t.Fatalf("rank %d reads from %d, which is not its left neighbour", h.id, a.To)
		}
		c.push(&h.claims, item{to: a.To, comm: a.Comm, seq: a.Seq, sub: a.Sub, ranges: a.Ranges})
	case Release:
		r := h.region(a, isOpen)
		r.state, r.took = released, c.now-r.took
		h.workers.close(r.placements)
	case Quiesce:
		c.hurt = true
		r := h.region(a, isOpen)
		r.state = revoked
		h.workers.close(r.placements)
		c.push(&h.quiet, item{comm: a.Comm, seq: a.Seq})
	case Closed:
		r := h.region(a, released)
		if r.closed {
			c.t.Fatalf("rank %d closes operation %d of communicator %d twice", h.id, a.Seq, a.Comm)
		}
		r.closed = true
		c.push(&h.drains, item{comm: a.Comm, seq: a.Seq})
	case Done:
		h.done(a)
	case Drop:
		if a.To == h.id || slices.Contains(h.lost, a.To) {
			c.t.Fatalf("rank %d drops rank %d; it has lost %v", h.id, a.To, h.lost)
		}
		if victim := c.hosts[a.To]; !victim.dead && !victim.late {
			c.t.Fatalf("rank %d takes rank %d for lost, which lives", h.id, a.To)
		}
		h.lost = append(h.lost, a.To)
	case Settled:
		h.agreed(a)
	case Removed:
		if h.node.comms[a.Comm] != nil {
			c.t.Fatalf("rank %d: communicator %d is removed and still there", h.id, a.Comm)
		}
		h.removed = append(h.removed, a.Comm)
	default:
		c.t.Fatalf("rank %d: unknown action %d", h.id, a.Kind)
	}
}

// region finds the operation of an action, which must be in a given state.
func (h *host) region(a *Action, want regionState) *region {
	r := h.ops[opKey{a.Comm, a.Seq}]
	if r == nil || r.state != want {
		h.c.t.Fatalf("rank %d: action %d for operation %d of communicator %d, which is not in state %d: %+v", h.id, a.Kind, a.Seq, a.Comm, want, r)
	}
	return r
}

// open checks a round's identity, that its slot is free, that the round before it
// is over, and that only the oldest calls run.
func (h *host) open(a *Action) {
	c := h.c
	shares := h.shares[a.Comm]
	at := slices.IndexFunc(shares, func(s *share) bool { return s.job.req == a.Req })
	if at < 0 || at >= h.node.cfg.InFlight {
		c.t.Fatalf("rank %d opens a round of request %d, which is number %d of those that have not ended", h.id, a.Req, at)
	}
	s := shares[at]
	if a.Seq != s.seq+uint64(len(s.rounds)) || a.Geometry != s.job.plan[len(s.rounds)] {
		c.t.Fatalf("rank %d opens operation %d for round %d of call %d", h.id, a.Seq, len(s.rounds), s.seq)
	}
	if n := len(s.rounds); n > 0 && s.rounds[n-1].state != released {
		c.t.Fatalf("rank %d opens operation %d before the round before it is over", h.id, a.Seq)
	}
	slot := opKey{a.Comm, uint64(c.cfg.Layout.Slot(a.Seq))}
	if r := h.inSlot[slot]; r != nil && !r.drained {
		c.t.Fatalf("rank %d opens operation %d in a slot that is not drained", h.id, a.Seq)
	}
	r := &region{share: s, geo: a.Geometry, took: c.now, left: map[[2]uint32]bool{}, placements: a.Placements}
	h.inSlot[slot], h.ops[opKey{a.Comm, a.Seq}] = r, r
	s.rounds = append(s.rounds, r)
	h.undrained[a.Comm]++
	h.workers.open(a.Placements)
	c.push(&h.opens, item{comm: a.Comm, seq: a.Seq})
}

func (h *host) multicast(a *Action) {
	c := h.c
	r := h.region(a, isOpen)
	for psn := a.PSN; psn < a.PSN+a.N; psn++ {
		key := [2]uint32{uint32(a.Sub), psn}
		if r.left[key] || c.comms[a.Comm][r.geo.Owner(a.Sub, psn)] != h.id {
			c.t.Fatalf("rank %d multicasts chunk %v twice, or it is not its own", h.id, key)
		}
		r.left[key] = true
		c.push(&h.nic, item{comm: a.Comm, seq: a.Seq, sub: a.Sub, psn: psn, imm: c.cfg.Layout.Imm(a.Seq, psn)})
	}
}

// done checks that a call ends once, when nothing can touch its buffers any
// more, with the right data or with an error that says all there is to say.
func (h *host) done(a *Action) {
	c := h.c
	shares := h.shares[a.Comm]
	at := slices.IndexFunc(shares, func(s *share) bool { return s.job.req == a.Req })
	if at < 0 {
		c.t.Fatalf("rank %d: request %d ends, but it is not under way: %v", h.id, a.Req, a.Err)
	}
	s := shares[at]
	h.shares[a.Comm] = slices.Delete(shares, at, at+1)
	for i, r := range s.rounds {
		if r.state != released && r.state != quiet {
			c.t.Fatalf("rank %d: call %d ends, but its round %d is in state %d", h.id, s.seq, i, r.state)
		}
	}
	s.ended, s.err = true, a.Err
	c.open--
	c.ends = append(c.ends, end{h.id, a.Req})
	if a.Err == nil {
		if len(s.rounds) != len(s.job.plan) || !bytes.Equal(s.recv, s.job.want()) {
			c.t.Fatalf("rank %d: call %d on communicator %d ends with wrong data after %d of %d rounds", h.id, s.seq, a.Comm, len(s.rounds), len(s.job.plan))
		}
		s.checkSpent(c, h.id, &a.Spent)
	} else {
		c.hurt = true
		s.checkError(c, h.id)
	}
	poison(s.send)
	poison(s.recv)
}

// checkSpent sees that a call's time is told completely: that of all its rounds.
func (s *share) checkSpent(c *cluster, rank int, p *Spent) {
	rounds := step.Time(0)
	for _, r := range s.rounds {
		rounds += r.took
	}
	if min(p.Barrier, p.Multicast, p.Fetch, p.Handshake) < 0 || p.Barrier+p.Multicast+p.Fetch+p.Handshake != rounds {
		c.t.Fatalf("rank %d, call %d: its rounds took %d, but it was %+v in its phases", rank, s.seq, rounds, *p)
	}
}

func (s *share) checkError(c *cluster, rank int) {
	e, phases := s.err, []step.Phase{step.Queued}
	if n := len(s.rounds); n > 0 && s.rounds[n-1].state == quiet && s.rounds[n-1].opened {
		phases = []step.Phase{step.Barrier, step.Multicast, step.Fetch, step.Handshake}
	}
	if e.Comm != s.job.comm || e.Seq != s.seq || e.Op != s.job.shape.Kind || !slices.Contains(phases, e.Phase) || e.Missing == "" ||
		e.Reason < Lost || e.Reason > Cancelled || e.Culprit < NoRank || e.Culprit >= len(c.hosts) {
		c.t.Fatalf("rank %d, call %d on communicator %d: the error is wrong: %+v", rank, s.seq, s.job.comm, *e)
	}
}
