package inc

import (
	"math/bits"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// sender is this rank's sending side. It sends each place once, in order, and again when an owner asks.
type sender struct {
	next     uint32  // first place that was not handed to the driver
	inFlight uint32  // places handed to the driver, but not sent
	again    []retry // by place modulo its length: what owners asked for; nil until the first request
	pending  uint32  // number of requests to answer
	from     uint32  // no request to answer is for a place below
}

// A retry is a request for one place.
type retry struct {
	place   uint32
	try     uint8 // highest that was asked for; 0 if none was
	pending bool
	offer   bool // whether it is only offered in this try
}

// offerTries is the number of tries in which ranks only offer a contribution: most of them have not been lost. Later
// tries do not depend on another answer.
const offerTries = 2

// WantedWindow returns the window that a job of this many ranks asks for. Aggregators lower it to what their memory and
// sockets can take. If half of all sums lack a contribution, an owner needs many chunks in the window: only a later
// sum proves that earlier places were sent.
func WantedWindow(ranks int) uint32 { return uint32(max(2048, 4*ranks)) }

// credit is the flow control: no rank sends a place that an aggregator may not have a slot for.
type credit struct {
	all      uint32    // no rank sends a place at or above it; smallest grant of all ranks
	movedAt  step.Time // time at which all grew
	child    []uint32  // smallest grant of each child's subtree
	reported uint32    // smallest grant of this subtree that the parent knows
	quantum  uint32    // smallest increase worth a message
}

// startCredit grants the first window. No owner has anything yet, and one of them owns place 0, so the smallest
// grant is known without a message.
func (o *Op) startCredit(now step.Time) {
	c := &o.credit
	c.all, c.movedAt = min(o.window, o.total), now
	for i := range c.child {
		c.child[i] = c.all
	}
	c.reported, c.quantum = c.all, o.quantum()
}

// quantum returns the smallest increase of a grant that is worth a message. Every rank on the way to the top may
// withhold nearly as much, and the sum must stay below the window: otherwise nobody sends, and no grant rises. A rank
// has less than bits.Len(size) ranks above it.
func (o *Op) quantum() uint32 {
	return max(1, min(o.window/8, o.window/uint32(2+bits.Len(uint(o.red.Size)))))
}

// first returns the first place that any owner may miss, as far as this rank knows.
func (o *Op) first() uint32 { return o.credit.all - min(o.credit.all, o.window) }

// own returns this rank's grant: the places before its first missing chunk, plus the window.
func (o *Op) own() uint32 {
	if o.repair.have >= o.chunks {
		return o.total
	}
	return uint32(min(uint64(o.layout.Place(o.red.Rank, o.repair.have))+uint64(o.window), uint64(o.total)))
}

// grant passes the smallest grant of this rank's subtree up, or down if this rank is the top. Small increases wait
// for others: once an owner has all granted places, its grant is a full window higher.
func (o *Op) grant(now step.Time, out []step.Action) []step.Action {
	c := &o.credit
	if !o.aggregated || c.reported == o.total {
		return out
	}
	lowest := o.own()
	for _, g := range c.child {
		lowest = min(lowest, g)
	}
	if lowest <= c.reported || lowest-c.reported < c.quantum && lowest < o.total {
		return out
	}
	c.reported = lowest
	if o.parent < 0 {
		return o.acceptGrant(now, lowest, out)
	}
	return o.message(o.parent, wire.Msg{Kind: wire.MsgGrantUp, Grant: uint64(lowest)}, out)
}

// acceptGrant adopts the smallest grant of all ranks and passes it down.
func (o *Op) acceptGrant(now step.Time, grant uint32, out []step.Action) []step.Action {
	if grant <= o.credit.all || !o.aggregated {
		return out
	}
	o.credit.all, o.credit.movedAt = grant, now
	return o.flood(wire.Msg{Kind: wire.MsgGrant, Grant: uint64(grant)}, o.parent, out)
}

// pump hands contributions to the driver: first what owners asked for, then what was never sent. While the driver
// sends one batch, it has the next.
func (o *Op) pump(out []step.Action) []step.Action {
	s := &o.send
	for o.aggregated && !o.allHave && s.inFlight <= o.cfg.Batch {
		a := o.takeRetries()
		if a.N == 0 {
			a.PSN, a.N = o.takeNext()
		}
		if a.N == 0 {
			break
		}
		s.inFlight += a.N
		a.Kind = step.ActReduce
		out = append(out, a)
	}
	return out
}

// takeNext returns the next places to send for the first time. This rank's own chunks in front cost nothing.
func (o *Op) takeNext() (first, n uint32) {
	s := &o.send
	for s.next < o.credit.all && o.isOwn(s.next) {
		s.next++
	}
	first, n = s.next, min(o.credit.all-s.next, o.cfg.Batch)
	s.next += n
	return first, n
}

func (o *Op) isOwn(place uint32) bool {
	owner, _, _, _ := o.layout.At(place)
	return owner == o.red.Rank
}

// answer notes an owner's request. Places that this rank has not sent come anyway. Places below the window are
// no longer missing.
func (o *Op) answer(m *wire.Msg) {
	s, owner := &o.send, int(m.Rank)
	if !o.aggregated || o.allHave || m.Rank >= uint32(o.red.Size) || owner == o.red.Rank || m.Round == 0 {
		return
	}
	if s.again == nil {
		s.again = make([]retry, min(o.window, o.total))
	}
	lo, hi := o.layout.Before(owner, o.first()), o.layout.Before(owner, s.next)
	for _, q := range m.Ranges {
		end := min(uint64(q.PSN)+uint64(q.N), uint64(hi))
		for nth := max(q.PSN, lo); uint64(nth) < end; nth++ {
			place := o.layout.Place(owner, nth)
			r := s.retry(place)
			if r.try >= m.Round {
				continue // a correct owner does not repeat a request
			}
			r.try, r.offer = m.Round, m.Round <= offerTries && (r.offer || !r.pending)
			s.resend(r)
		}
	}
}

// retry returns what was asked of a place.
func (s *sender) retry(place uint32) *retry {
	r := &s.again[place%uint32(len(s.again))]
	if r.place != place {
		s.drop(r)
		*r = retry{place: place}
	}
	return r
}

// resend plans to send a place again.
func (s *sender) resend(r *retry) {
	if !r.pending {
		r.pending = true
		s.pending++
	}
	s.from = min(s.from, r.place)
}

// Wanted reports that this rank's aggregator misses a contribution which it was offered in a try.
func (o *Op) Wanted(now step.Time, place uint32, try uint8, out []step.Action) []step.Action {
	if !o.running() {
		return out
	}
	o.watchSilence(now)
	s := &o.send
	if o.aggregated && !o.allHave && s.again != nil && place >= o.first() && place < s.next {
		if r := s.retry(place); r.try == try && r.offer { // otherwise it was sent since
			r.offer = false
			s.resend(r)
		}
	}
	return o.settle(now, out)
}

// drop forgets a request that was not answered.
func (s *sender) drop(r *retry) {
	if r.pending {
		r.pending = false
		s.pending--
	}
}

// takeRetries returns consecutive places to send or offer again.
func (o *Op) takeRetries() (a step.Action) {
	s := &o.send
	if s.pending == 0 {
		s.from = o.total
		return a
	}
	for s.from = max(s.from, o.first()); s.from < s.next && a.N < o.cfg.Batch; s.from++ {
		r := &s.again[s.from%uint32(len(s.again))]
		due := r.pending && r.place == s.from
		switch {
		case !due && a.N == 0:
		case !due || a.N > 0 && (r.try != a.Try || r.offer != a.Offer):
			return a
		default:
			if a.N == 0 {
				a.PSN, a.Try, a.Offer = s.from, r.try, r.offer
			}
			s.drop(r)
			a.N++
		}
	}
	if a.N == 0 { // the others are below the window
		for i := range s.again {
			s.drop(&s.again[i])
		}
	}
	return a
}
