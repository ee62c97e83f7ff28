package mcast

import (
	"math"
	"slices"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// sender is the send side of the fast path. It cuts the block of one rank into batches, round-robin
// over the subgroups.
type sender struct {
	total, handed, done uint32
	sub                 int      // next subgroup to serve
	cursor              []uint32 // chunks handed over, by subgroup

	pred, succ int       // neighbours in the chain, or -1
	active     bool      // whether it is this rank's turn
	predSent   bool      // whether all earlier ranks of the chain have finished
	activated  bool      // whether the successor has been activated
	chainSent  bool      // whether the successor knows that this rank has finished
	nextAt     step.Time // earliest time of the next batch (pacing)
	blocked    bool      // whether the sender is out of credit
	share      share
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

// lead returns how many chunks before its end this rank activates its successor. The link sends that
// many chunks while the activation travels, so the successor's first chunk follows without a gap.
func (o *Collective) lead() uint32 {
	if o.cfg.Est.latency <= 0 || o.cfg.Est.limits.LinkRate <= 0 || o.snd.total == 0 {
		return 0
	}
	// lead counts whole chunks. Rounding varies along the chain, so that it is right on average:
	// an early activation compensates for the next late one.
	part := float64(o.g.chains.pos[o.g.index[o.rank]]) * 0.6180339887
	part -= math.Floor(part)
	return uint32(min(float64(o.cfg.Est.latency)/o.chunkTime()+part, float64(o.snd.total)))
}

// observeHandover looks for the end of one block and the start of the successor's block in chunks
// that have arrived from one sender.
func (o *Collective) observeHandover(now step.Time, stream, j int, q wire.Range) {
	c, sub, sender := &o.g.chains, o.g.Subgroup(stream), o.g.sender(stream, j)
	k := c.of[sender]
	if sub == 0 && q.PSN == o.g.base[stream][j] {
		switch p := c.pos[sender]; {
		case p == 0:
		case o.blocks[k].ended == p: // the previous block has ended
			o.cfg.Est.Handover(now-o.blocks[k].endedAt, step.Time(o.chunkTime()))
		default:
			o.cfg.Est.Overlap(step.Time(o.chunkTime()))
		}
	}
	if sub == o.g.subs-1 && q.PSN+q.N == o.g.base[stream][j+1] {
		o.blocks[k] = blockEnd{c.pos[sender] + 1, now}
	}
}

// blockEnd is the end of the last block that has arrived from a chain.
type blockEnd struct {
	ended   int32 // position of the block's sender in the chain, counted from 1; 0 before the first
	endedAt step.Time
}

// chunkTime returns how long one chunk of this rank takes on the wire. With M roots sending at once,
// each root paces itself at B/M. If all ranks send at once, each rank receives from the P-1 others
// only, and may send at B/(P-1). This does not hold if a reduction runs as well, because its results
// need the rest of the bandwidth (Appendix B, equation 2).
func (o *Collective) chunkTime() float64 {
	m := max(1, o.g.Chains())
	if m == o.g.size && m > 1 && (o.cfg.Others == nil || o.cfg.Others.InFlight() == 0) {
		m--
	}
	return float64(o.wireSize(1)) * float64(m) / o.cfg.Est.limits.LinkRate
}

// pump hands over as many batches as turn, pace, credit and the fabric's queue allow.
func (o *Collective) pump(now step.Time, out []step.Action) []step.Action {
	return o.pumpSince(now, now, out)
}

// pumpSince is pump for a rank whose timer fired late: the rank could have sent since then. It may
// catch up, because otherwise late timers would reduce its rate.
func (o *Collective) pumpSince(since, now step.Time, out []step.Action) []step.Action {
	s := &o.snd
	s.blocked, s.share.held = false, false
	lead := o.lead()
	for o.phase >= step.Multicast && s.active && s.handed < s.total &&
		s.handed-s.done < 2*o.cfg.Batch && now >= s.nextAt {
		psn, n := o.batch(lead)
		if n = o.clampToCredit(n); n == 0 {
			s.blocked = true
			break
		}
		if n = o.clampToShare(now, n); n == 0 {
			break
		}
		out = append(out, step.Action{Kind: step.ActMulticast, Stream: o.ownStream(s.sub), PSN: psn, N: n})
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

// ownStream returns the stream of this rank's chunks in a subgroup.
func (o *Collective) ownStream(sub int) int { return o.g.stream(int(o.g.index[o.rank]), sub) }

// batch returns the next chunks of the next subgroup that has any left.
func (o *Collective) batch(lead uint32) (psn, n uint32) {
	s := &o.snd
	for {
		base, size := o.g.Block(o.ownStream(s.sub), o.rank)
		if left := size - s.cursor[s.sub]; left > 0 {
			// Bursts of many roots would collide, so each root sends smaller batches. A part of a
			// super-packet would cost all ranks as much as a whole one.
			n = min(max(1, o.cfg.Super, o.cfg.Batch/uint32(o.g.Chains())), left)
			// End a batch where the successor is due: the completion of the batch triggers the activation.
			if rest := s.total - s.handed; rest > lead && rest-n < lead {
				n = rest - lead
			}
			return base + s.cursor[s.sub], n
		}
		s.sub = (s.sub + 1) % o.g.subs
	}
}

// handleSent handles the event that n chunks have left the send buffer.
func (o *Collective) handleSent(now step.Time, n uint32, out []step.Action) []step.Action {
	s := &o.snd
	s.done = min(s.done+n, s.handed)
	out = o.passTurn(o.pump(now, out))
	return o.announceSent(now, o.updateGrant(now, out))
}

// passTurn activates the successor. A rank does so only after all earlier ranks of its chain have
// finished. A chunk of this rank therefore proves that all of them but its direct predecessor have
// sent everything (arrivals.recordArrival).
func (o *Collective) passTurn(out []step.Action) []step.Action {
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

// announceSent tells the control tree when this rank's subtree has sent everything.
func (o *Collective) announceSent(now step.Time, out []step.Action) []step.Action {
	t := &o.tree
	t.ownSent = t.ownSent || (o.phase >= step.Multicast && o.snd.finished())
	if !t.ownSent || t.reported || slices.Contains(t.heard, false) {
		return out
	}
	t.reported = true
	if t.silent {
		return out
	}
	if t.parent >= 0 {
		return o.send(out, t.parent, wire.Msg{Kind: wire.MsgSentUp})
	}
	return o.recordAllSent(now, out)
}

// recordAllSent records that every rank has sent everything, and passes the message down the tree.
func (o *Collective) recordAllSent(now step.Time, out []step.Action) []step.Action {
	o.tree.allSent = true
	o.recordProgress(now)
	for i := range o.arrived {
		o.arrived[i].recordAllFinished()
	}
	o.recordAnnounced(now)
	return o.forward(wire.Msg{Kind: wire.MsgAllSent}, o.tree.parent, out)
}
