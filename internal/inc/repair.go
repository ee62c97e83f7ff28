package inc

import (
	"math"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

const (
	// minFetched is a number of fetched chunks that says nothing about the aggregators.
	minFetched = 8
	// maxBackoff limits how much patience grows with requests that are late.
	maxBackoff = 4
	// minProbe is the number of chunks that a rank asks for at first if nothing proves that they were sent.
	minProbe = 2
)

// repair is this rank's receiving side: which chunks of its block it has, which it asked for, and which it
// fetches.
type repair struct {
	have  uint32 // all chunks below are in place
	top   uint32 // all chunks at or above were not placed by a datagram
	asked uint32 // all chunks below were placed, claimed or asked for
	limit uint32 // no rank sends a chunk at or above: it is beyond this rank's grant

	sumAt  step.Time // time of the last sum; of the end of the barrier before the first sum
	sums   uint32    // number of sums, without those that were asked for
	pace   step.Time // time per place, in 1/256 ns; 0 before the first measurement
	paceAt step.Time // start of the current measurement

	pacePlace, paceCredit uint32 // place of the last sum, and credit at that time

	endAt  step.Time // time of the sum of the last chunk; 0 before it
	mark   uint32    // chunks below were proved sent at markAt less the grace
	markAt step.Time // time at which to ask for them
	asks   []ask     // requests without an answer, in the order of chunks
	dueAt  step.Time // time at which the first answer is late
	Answers
	answered bool   // whether this Op has learned from an answer
	heard    bool   // whether another owner has asked for a chunk
	probe    uint32 // number of chunks to ask for if nothing proves that they were sent

	queue     []wire.Range // chunks to fetch
	fetching  int          // fetches in flight
	fetched   uint32       // chunks fetched because aggregators did not deliver them
	alive     bool         // whether a fetch has ended since the last sum: the other ranks respond
	silent    step.Time    // time that this rank has spent waiting for answers since the last sum
	silentAt  step.Time    // time up to which silent was added up
	fetchNext uint32       // first chunk that was not fetched, once all are fetched
	fetchAt   step.Time    // time at which a fetch began or ended last
	fetchTime step.Time    // time of a chunk in the last fetch; 0 before the first
	behind    step.Time    // time by which sums are later than the owner could have made them
	slow      bool         // whether a fetch has shown that they are far too late
}

// Answers is how long requests take. Later operations may expect the same.
type Answers struct {
	answer  step.Time // mean time from a request to its sum; 0 before the first measurement
	dev     step.Time // mean deviation of answer
	backoff uint8     // how often to double the time, because requests were late since the last measurement
}

// Answers returns how long requests take. What an earlier operation has learned counts less if this one has asked
// for nothing. Otherwise one rank that was slow once would delay requests for ever.
func (o *Op) Answers() Answers {
	a := o.repair.Answers
	if !o.repair.answered {
		a.answer -= a.answer / 4
		a.dev -= a.dev / 4
	}
	return a
}

// An ask is a request for one chunk.
type ask struct {
	nth   uint32
	try   uint8
	fresh bool      // whether it was not sent yet
	first step.Time // time of the first request
	at    step.Time // time of the last request
	lost  step.Time // time at which the answer counts as lost, because a later one has arrived; 0 for none
}

func (r *repair) start(now step.Time) {
	r.sumAt, r.silentAt, r.markAt, r.dueAt, r.probe = now, now, step.Never, step.Never, minProbe
}

// recordSums learns from sums that have arrived.
func (o *Op) recordSums(now step.Time) {
	r := &o.repair
	r.sumAt, r.alive, r.silent, r.silentAt = now, false, 0, now
	if !o.aggregated {
		return
	}
	answers := o.recordAnswers(now)
	r.limit = o.layout.Before(o.red.Rank, o.own())
	before, sums := r.top, r.sums
	for at := r.top; at < r.limit; {
		if at = o.record.NextInPlace(at, r.limit); at < r.limit {
			if !o.record.ForRead(at) {
				r.top = at + 1
				r.sums++
			}
			at++
		}
	}
	o.catchUp(r.sums - sums + answers)
	if r.top > r.asked {
		r.probe = minProbe // sums arrive without requests
	}
	if r.top > before {
		o.measurePace(now, o.layout.Place(o.red.Rank, r.top-1), r.top > r.asked)
	}
	if before < o.chunks && r.top == o.chunks {
		r.endAt = now
		o.schedule()
	}
}

// measurePace learns how long a place takes. A pause counts as at most twice the average. Two kinds of places say
// nothing, because they include the waits for a repair, which depend on the pace: those that this rank has asked for,
// and those that ranks could not send yet when the last sum arrived.
func (o *Op) measurePace(now step.Time, place uint32, unasked bool) {
	r := &o.repair
	if unasked && r.paceAt > 0 && place > r.pacePlace && place < r.paceCredit {
		sample := (now - r.paceAt) * 256 / step.Time(place-r.pacePlace)
		if r.pace == 0 {
			r.pace = sample
		}
		r.pace += (min(sample, 2*r.pace) - r.pace) / 4
	}
	r.paceAt, r.pacePlace, r.paceCredit = now, place, o.credit.all
}

// Pace returns how long a place takes, in 1/256 ns. Later operations may expect the same.
func (o *Op) Pace() step.Time {
	if o.repair.pace == 0 {
		return o.cfg.Pace
	}
	return o.repair.pace
}

// recordPlaced notices chunks that are in place.
func (o *Op) recordPlaced(now step.Time) {
	r := &o.repair
	r.have = o.record.NextMissing(r.have, o.chunks)
	if r.have >= o.chunks && o.phase != step.Handshake {
		o.phase, o.times.Have = step.Handshake, now
	}
}

// recordAnswers removes requests whose chunks have arrived, and learns how long an answer takes. Only the answer to
// a first request is known to belong to it. It returns the number of answers for chunks below the highest one.
func (o *Op) recordAnswers(now step.Time) (n uint32) {
	r, keep := &o.repair, o.repair.asks[:0]
	var answered ask // last request that was answered
	for _, a := range r.asks {
		if o.record.Free(a.nth) {
			keep = append(keep, a)
			continue
		}
		if o.record.ForRead(a.nth) {
			continue
		}
		o.stats.Late++
		if a.nth < r.top {
			n++
		}
		answered = later(answered, a)
		r.answered = true
		switch took := now - a.at; {
		case a.try != 1:
		case r.answer == 0:
			r.answer, r.dev, r.backoff = max(1, took), took/2, 0
		default: // as in RFC 6298
			r.backoff = 0
			diff := took - r.answer
			r.answer += diff / 8
			r.dev += (max(diff, -diff) - r.dev) / 4
		}
	}
	r.asks = keep
	o.proveLost(now, answered)
	o.schedule()
	return n
}

// proveLost notes that the answers to earlier requests are lost. Ranks answer in the order of requests, and requests
// of the same time in the order of chunks. An answer for which an aggregator first wants contributions may only be
// late. Another offer costs less than the wait.
func (o *Op) proveLost(now step.Time, answered ask) {
	for i := range o.repair.asks {
		a := &o.repair.asks[i]
		if answered.try > 0 && a.try > 0 && a.lost == 0 && later(answered, *a) == answered {
			a.lost = now + o.grace()
		}
	}
}

// later returns the later one of two requests.
func later(a, b ask) ask {
	if b.at > a.at || b.at == a.at && b.nth > a.nth {
		return b
	}
	return a
}

// schedule computes the time of the next late answer.
func (o *Op) schedule() {
	r := &o.repair
	r.dueAt = step.Never
	for _, a := range r.asks {
		r.dueAt = min(r.dueAt, o.due(a))
	}
}

// patience returns how long to wait for a sum. At first that is the time of a message and its answer, and that of
// all granted places that may travel before the sum. Later it is what answers to requests take. Each try doubles it.
func (o *Op) patience(try uint8) step.Time {
	r := &o.repair
	limit := o.cfg.Limits.Silent / 8
	base := max(step.Microsecond, min(o.cfg.Alpha(), limit))
	ahead := times(o.Pace(), o.credit.all-min(o.credit.all, r.pacePlace), limit) // since the last sum
	switch {
	case try == 0 && r.sums > 0: // answers wait behind other places, the next sum does not
		base = 2 * (base + ahead)
	case try > 0 && r.answer > 0:
		base = max(base/2, r.answer+4*r.dev) << r.backoff
	default:
		base = max(2*base, r.answer+4*r.dev) + ahead
	}
	return max(1, min(min(base, limit)<<min(max(try, 1)-1, 16), limit))
}

// doubt returns how long to wait for a chunk if nothing proves that it was sent. A rank on a busy machine may not have
// its turn for a while, and then every owner would ask every rank. It is shorter on fast networks if all ranks have
// begun: sums have arrived, or another owner asks, which has them or has waited as long. Each try doubles it.
func (o *Op) doubt(try uint8) step.Time {
	base := o.cfg.Limits.Silent / 128
	if o.repair.sums > 0 || o.repair.heard {
		base = min(base, 8*min(o.cfg.Alpha(), base))
	}
	return max(1, min(base<<min(max(try, 1)-1, 16), o.cfg.Limits.Silent/8))
}

// due returns the time at which the answer to a request is late. After the last sum, answers no longer wait behind
// places that are sent for the first time.
func (o *Op) due(a ask) step.Time {
	if a.lost > 0 {
		return min(a.lost, a.at+o.patience(a.try))
	}
	idle := o.patience(0) << min(max(a.try, 1)-1, 16) // if nothing else is sent
	due := a.at + o.patience(a.try)
	switch end := o.repair.endAt; {
	case a.nth >= o.repair.top:
		return max(min(due, a.at+idle), a.at+o.doubt(a.try))
	case end > 0:
		return min(due, max(a.at, end)+idle)
	}
	return due
}

// grace returns how long datagrams may overtake each other. It is long enough to ask for many chunks at once. Once
// this rank knows the pace, it is also too short for the window to run out meanwhile.
func (o *Op) grace() step.Time {
	grace := o.cfg.Alpha() / 4
	if window := times(o.Pace(), o.window, 8*o.cfg.Limits.Silent); window > 0 {
		grace = max(min(grace, window/4), grace/4) + window/32
	}
	return max(1, min(grace, o.cfg.Limits.Silent/8))
}

// times returns the time of n places at a pace in 1/256 ns, and at most limit.
func times(pace step.Time, n uint32, limit step.Time) step.Time {
	if n == 0 {
		return 0
	}
	return min(pace, 256*limit/step.Time(n)) * step.Time(n) / 256
}

// detectLoss asks for chunks that are late.
//
// Ranks send in order, so a sum proves that all ranks have sent the places before it. Its aggregators have
// them, or they are lost. A small grace lets datagrams overtake each other.
//
// Nothing proves that the last granted places were sent: a rank may be slow. After some time without a sum, the
// owner asks for the first few of them. Ranks that have not sent them ignore the request. If an answer comes, the
// owner asks for more.
func (o *Op) detectLoss(now step.Time, out []step.Action) []step.Action {
	r := &o.repair
	if !o.aggregated || r.have >= o.chunks {
		return out
	}
	if now >= r.markAt {
		o.ask(now, r.mark)
		r.markAt = step.Never
	}
	if r.asked < r.top {
		r.asked = o.record.NextFree(r.asked, r.top)
		if r.asked < r.top && r.markAt == step.Never {
			r.mark, r.markAt = r.top, now+o.grace()
		}
	}
	if now >= o.tailAt() {
		end, n := r.asked, uint32(0)
		for all := o.granted(); end < all && n < r.probe; n++ {
			end = min(o.record.NextFree(end, all)+1, all)
		}
		o.ask(now, end)
		r.probe *= 2
	}
	out = o.repeatAsks(now, out)
	o.probeFetch()
	if r.slow || r.alive && (r.silent >= o.cfg.Limits.Silent || r.fetched > o.maxFetched()) {
		out = o.fallBack(now, o.red.Rank, -1, out)
	}
	return out
}

// granted returns the number of chunks of this rank's block that other ranks may have sent.
func (o *Op) granted() uint32 { return o.layout.Before(o.red.Rank, o.credit.all) }

// tailAt returns the time at which to ask for the last granted chunks.
func (o *Op) tailAt() step.Time {
	r, end := &o.repair, o.granted()
	if o.record.NextFree(r.asked, end) >= end {
		return step.Never
	}
	if n := len(r.asks); n > 0 && r.asks[n-1].nth >= r.top {
		return step.Never // the answer to the last request shows whether ranks are slow
	}
	return max(r.sumAt, o.credit.movedAt) + max(o.patience(0), o.doubt(0))
}

// ask plans requests for all missing chunks below end. repeatAsks sends them.
func (o *Op) ask(now step.Time, end uint32) {
	r := &o.repair
	if o.times.Cutoff == 0 {
		o.times.Cutoff = now - o.times.Barrier
	}
	for at := o.record.NextFree(r.asked, end); at < end; at = o.record.NextFree(at+1, end) {
		r.asks = append(r.asks, ask{nth: at, first: now})
		r.dueAt = now
	}
	r.asked = max(r.asked, end)
}

// repeatAsks sends the requests that are due. A chunk that was asked for too often is fetched. If nothing proves that
// it was sent, the owner asks for longer, because a fetch would have to wait for the same slow rank. Once a fetch has
// shown that all ranks respond, it does not.
func (o *Op) repeatAsks(now step.Time, out []step.Action) []step.Action {
	r := &o.repair
	if now < r.dueAt {
		return out
	}
	keep, last := r.asks[:0], uint8(0)
	for _, a := range r.asks {
		switch {
		case !o.record.Free(a.nth): // its report is late
			continue
		case a.try > 0 && now < o.due(a):
		case int(a.try) >= o.cfg.Limits.Tries && (a.nth < r.top || r.alive || now-a.first >= o.cfg.Limits.Silent/4),
			a.try == math.MaxUint8:
			r.queue = appendChunk(r.queue, a.nth)
			continue
		default:
			switch {
			case a.try == 0:
			case a.nth >= r.top:
				r.probe = minProbe
			case a.lost == 0 && a.try > r.backoff: // the answer may only be late
				r.backoff = min(a.try, maxBackoff)
			}
			a.try, a.at, a.fresh, a.lost = a.try+1, now, true, 0
			last = max(last, a.try)
		}
		keep = append(keep, a)
	}
	r.asks = keep
	o.schedule()
	for try := uint8(1); try <= last; try++ {
		out = o.sendAsks(try, out)
	}
	return out
}

// sendAsks sends the new requests of a try.
func (o *Op) sendAsks(try uint8, out []step.Action) []step.Action {
	var ranges []wire.Range
	for i := range o.repair.asks {
		if a := &o.repair.asks[i]; a.fresh && a.try == try {
			a.fresh = false
			ranges = appendChunk(ranges, a.nth)
		}
	}
	for len(ranges) > 0 {
		n := min(len(ranges), wire.MaxRanges)
		out = o.flood(wire.Msg{
			Kind: wire.MsgIncAsk, Rank: uint32(o.red.Rank), Round: try, Ranges: ranges[:n:n],
		}, -1, out)
		ranges = ranges[n:]
	}
	return out
}

// appendChunk adds a chunk to ranges in increasing order.
func appendChunk(ranges []wire.Range, nth uint32) []wire.Range {
	if n := len(ranges); n > 0 && ranges[n-1].PSN+ranges[n-1].N == nth {
		ranges[n-1].N++
		return ranges
	}
	return append(ranges, wire.Range{PSN: nth, N: 1})
}

// watchSilence adds up the time in which this rank waited for answers, before an event changes that. Fetches do not
// count, because they wait for other ranks: a rank that was stopped for a while says nothing about the aggregators.
func (o *Op) watchSilence(now step.Time) {
	r := &o.repair
	if len(r.asks) > 0 && r.fetching == 0 {
		r.silent += now - r.silentAt
	}
	if o.waits() { // after a timer that is late, this rank was stopped itself
		r.behind += max(0, min(now, o.timer)-r.silentAt)
	}
	r.silentAt = now
}

// maxFetched returns the number of fetched chunks that aggregators may cause: two windows, or one chunk in eight.
func (o *Op) maxFetched() uint32 {
	return max(minFetched, 2*(o.layout.Before(o.red.Rank, o.window)+1)) + o.repair.sums/8
}

// fallBack ends the use of aggregators on all ranks. Every owner fetches what it misses.
func (o *Op) fallBack(now step.Time, noticed, from int, out []step.Action) []step.Action {
	if !o.aggregated {
		return out
	}
	o.aggregated, o.noticed = false, noticed
	o.fellBack = o.repair.have < o.chunks
	out = o.flood(wire.Msg{Kind: wire.MsgIncDown, Rank: uint32(noticed)}, from, out)
	o.send.again, o.send.pending = nil, 0
	o.repair.asks, o.repair.queue = nil, nil
	o.startFetching(now)
	return out
}

// nextTimer returns the time at which detectLoss may have something to do.
func (o *Op) nextTimer(now step.Time) step.Time {
	r := &o.repair
	if !o.aggregated || r.have >= o.chunks || !o.running() {
		return step.Never
	}
	at := min(r.markAt, o.tailAt(), r.dueAt)
	if r.alive && len(r.asks) > 0 && r.fetching == 0 {
		at = min(at, now+o.cfg.Limits.Silent-r.silent)
	}
	if o.waits() && len(r.queue) == 0 {
		at = min(at, now+o.maxBehind()-r.behind)
	}
	return max(at, now+1)
}
