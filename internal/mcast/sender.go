package mcast

import (
	"math"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// sender is the fast path's send side: one rank's block, cut into batches that
// go round-robin over the subgroups.
type sender struct {
	total, handed, done uint32
	sub                 int      // next subgroup to serve
	cursor              []uint32 // chunks handed over, by subgroup

	pred, succ int       // in the chain; -1: none
	active     bool      // it is our turn
	predSent   bool      // all before us in the chain have sent all
	activated  bool      // our successor knows that it is its turn
	chainSent  bool      // and that we have finished
	nextAt     step.Time // pacing: no batch before this
	blocked    bool      // out of credit
}

func newSender(g *Geometry, rank int) sender {
	s := sender{cursor: make([]uint32, g.subs)}
	s.pred, s.succ = g.neighbours(rank)
	if i := g.index[rank]; i >= 0 && g.size > 1 {
		s.total = g.chunks[i]
	}
	s.predSent = s.pred < 0
	return s
}

func (s *sender) finished() bool { return s.done == s.total }

// lead is how many chunks before our end the successor is activated, so that
// its first chunk follows our last without a gap: what the link sends while
// the activation travels.
func (o *Collective) lead() uint32 {
	if o.cfg.Est.latency <= 0 || o.cfg.Est.limits.LinkRate <= 0 || o.snd.total == 0 {
		return 0
	}
	// Whole chunks only: round up or down so that it is right on average along
	// the chain. What one activation is early fills what the next is late.
	part := float64(o.g.chains.pos[o.g.index[o.rank]]) * 0.6180339887
	part -= math.Floor(part)
	return uint32(min(float64(o.cfg.Est.latency)/o.chunkTime()+part, float64(o.snd.total)))
}

// handedOver watches the stream for the end of one block and the beginning of
// its successor's, in the chunks of one sender that have come.
func (o *Collective) handedOver(now step.Time, sub, sender int, q wire.Range) {
	c := &o.g.chains
	k := c.of[sender]
	if sub == 0 && q.PSN == o.g.base[sub][sender] {
		switch p := c.pos[sender]; {
		case p == 0:
		case o.blockOf[k] == p: // the block before it, counted from 1, has ended
			o.cfg.Est.Handover(now-o.blockEnd[k], step.Time(o.chunkTime()))
		default:
			o.cfg.Est.Overlap(step.Time(o.chunkTime()))
		}
	}
	if sub == o.g.subs-1 && q.PSN+q.N == o.g.base[sub][sender+1] {
		o.blockEnd[k], o.blockOf[k] = now, c.pos[sender]+1
	}
}

// chunkTime is how long one chunk of ours takes on the wire: with M roots
// sending at once, each paces itself at B/M. When all ranks send at once, nobody
// hears more than the P-1 others and each may send at B/(P-1); unless a reduction
// runs as well, whose results need the rest (Appendix B, equation 2).
func (o *Collective) chunkTime() float64 {
	m := max(1, o.g.Chains())
	if m == o.g.size && m > 1 && (o.cfg.Others == nil || *o.cfg.Others == 0) {
		m--
	}
	return float64(o.wire()) * float64(m) / o.cfg.Est.limits.LinkRate
}

// pump hands over as many batches as turn, pace, credit and the fabric's queue
// allow.
func (o *Collective) pump(now step.Time, out []step.Action) []step.Action {
	return o.pumpSince(now, now, out)
}

// pumpSince does so for a rank that would have sent since then, had its clock not gone
// off late: what it missed it may catch up with, or late clocks would slow it down.
func (o *Collective) pumpSince(since, now step.Time, out []step.Action) []step.Action {
	s := &o.snd
	s.blocked = false
	lead := o.lead()
	for o.phase >= step.Multicast && s.active && s.handed < s.total && s.handed-s.done < 2*o.cfg.Batch && now >= s.nextAt {
		psn, n := o.batch(lead)
		if n = o.credit(n); n == 0 {
			s.blocked = true
			break
		}
		out = append(out, step.Action{Kind: step.ActMulticast, Sub: s.sub, PSN: psn, N: n})
		s.cursor[s.sub] += n
		s.handed += n
		s.sub = (s.sub + 1) % o.g.subs
		if o.g.Chains() > 1 && o.cfg.Est.limits.LinkRate > 0 {
			took := step.Time(o.chunkTime() * float64(n))
			s.nextAt = max(since, s.nextAt, now-2*took) + took
		}
	}
	return out
}

// batch picks the next chunks of the next subgroup that has any left.
func (o *Collective) batch(lead uint32) (psn, n uint32) {
	s := &o.snd
	for {
		base, size := o.g.Block(s.sub, o.rank)
		if left := size - s.cursor[s.sub]; left > 0 {
			// Many roots at once would meet in bursts: each sends fewer at a time.
			n = min(max(1, o.cfg.Batch/uint32(o.g.Chains())), left)
			// End a batch where the successor is due: its completion is the signal.
			if rest := s.total - s.handed; rest > lead && rest-n < lead {
				n = rest - lead
			}
			return base + s.cursor[s.sub], n
		}
		s.sub = (s.sub + 1) % o.g.subs
	}
}

// sent learns that n chunks have left the send buffer.
func (o *Collective) sent(now step.Time, n uint32, out []step.Action) []step.Action {
	s := &o.snd
	s.done = min(s.done+n, s.handed)
	out = o.pump(now, out)
	out = o.handOver(out)
	out = o.consumedMore(now, out)
	return o.announce(now, out)
}

// handOver passes the turn on. A rank does so only when all before it in the
// chain have finished, so that whoever sees a chunk of ours knows that all but
// our predecessor have sent all (arrivals.saw).
func (o *Collective) handOver(out []step.Action) []step.Action {
	s := &o.snd
	if s.succ < 0 || !s.predSent || !s.active {
		return out
	}
	if s.finished() && !s.chainSent {
		s.activated, s.chainSent = true, true
		return o.send(out, s.succ, wire.Msg{Kind: wire.MsgChainSent})
	}
	if !s.activated && s.total-s.done <= o.lead() {
		s.activated = true
		return o.send(out, s.succ, wire.Msg{Kind: wire.MsgActivate})
	}
	return out
}

// announce tells the control tree when our subtree has sent all.
func (o *Collective) announce(now step.Time, out []step.Action) []step.Action {
	t := &o.tree
	t.own = t.own || (o.phase >= step.Multicast && o.snd.finished())
	if !t.own || t.waiting > 0 || t.up {
		return out
	}
	t.up = true
	if t.silent {
		return out
	}
	if t.parent >= 0 {
		return o.send(out, t.parent, wire.Msg{Kind: wire.MsgSentUp})
	}
	return o.allSent(now, out)
}

// allSent learns for certain that everything was sent, and passes it on.
func (o *Collective) allSent(now step.Time, out []step.Action) []step.Action {
	o.tree.all = true
	o.allSentAt, o.idleCutoffs = now, 0
	for _, c := range o.tree.children {
		out = o.send(out, c, wire.Msg{Kind: wire.MsgAllSent})
	}
	for i := range o.arrived {
		o.arrived[i].noteAll()
	}
	o.noted(now)
	return out
}
