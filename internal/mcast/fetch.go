package mcast

import (
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// The slow path. A rank asks its left neighbour for chunks that were sent but have not arrived. The
// neighbour offers each chunk as soon as it has it. The rank records the offers and reads the chunks
// in long requests. Only a few requests are in flight, however many chunks were lost.
const (
	// readBytes limits the size of one read. It is large enough to be worth a message. It is
	// small enough for repaired chunks to travel on while the rank reads the next ones.
	// One read also covers at most MaxRanges chunks, to limit the number of pieces of memory.
	readBytes = 256 << 10
	// MaxReads limits the reads in flight per Collective. While the neighbour answers one read,
	// the next request is in transit, and the receive worker claims chunks for a third.
	MaxReads = 4
)

// fetcher is the slow path of one subgroup.
type fetcher struct {
	requested   *Bitmap // chunks that the right neighbour has requested; nil before the first
	wanted      *Bitmap // requested chunks that this rank does not have yet; nil before the first
	wantedCount uint32  // number of bits in wanted
	offered     *Bitmap // requested chunks that the left neighbour has offered; nil before the first
	unread      *Bitmap // offered chunks for which no read has started; nil before the first
	unreadCount uint32  // number of bits in unread
	next        uint32  // chunk at which the next read starts its search
}

// cutoffAt returns the time at which the missing chunks count as lost: N/B + alpha after the last
// sign of progress, where N is the size of the missing chunks. It moves with progress, because a
// pause for credit or a late activation is not a loss. It backs off without progress. The cutoff is
// earlier once everything is known to have been sent. That message took at least as long as the last
// datagrams needed. Only chunks that may be in transit at the same time are worth waiting for.
func (o *Collective) cutoffAt() step.Time {
	missing := o.missing()
	if missing == 0 || (o.phase != step.Multicast && o.phase != step.Fetch) || missing == o.asked {
		return step.Never
	}
	slack := o.cfg.Est.Slack(int64(missing) * o.chunkWireSize())
	if o.tree.allSent {
		slack = o.cfg.Est.Transit(o.inTransit(missing) * o.chunkWireSize())
	}
	if o.idleCutoffs > 0 {
		slack <<= min(o.idleCutoffs, 20)
	}
	return max(o.times.Barrier, o.progressAt, o.allSentAt, o.cutAt) + slack
}

// inTransit returns how many of the missing chunks may be in transit.
func (o *Collective) inTransit(missing uint32) int64 {
	if o.cfg.Pool == nil {
		return int64(missing)
	}
	return min(int64(missing), int64(o.cfg.Pool.size))
}

// Queued records that datagrams wait to be received. That counts as progress, and the datagrams may
// contain chunks that were announced as sent. It stops counting when the workers have taken as many
// datagrams as the queue holds since the Collective last made progress or learned of sent chunks.
// The waiting datagrams then belong to other operations, and that may last for ever.
func (o *Collective) Queued(now step.Time) {
	if p := o.cfg.Pool; o.cr.on && p.taken.Count()-o.knownTaken >= p.size {
		return
	}
	o.progressAt = max(o.progressAt, now)
	if c := &o.cr; c.announced {
		c.announcedAt = max(c.announcedAt, now)
	}
}

// recordProgress records that chunks have arrived.
func (o *Collective) recordProgress(now step.Time) {
	o.progressAt, o.idleCutoffs = now, 0
	o.recordTaken()
}

// recordTaken stores the number of datagrams taken when the Collective learned of arrived or sent chunks.
func (o *Collective) recordTaken() {
	if o.cr.on {
		o.knownTaken = o.cfg.Pool.taken.Count()
	}
}

// handleCutoff asks the left neighbour for every chunk that was sent but has not arrived.
func (o *Collective) handleCutoff(now step.Time, out []step.Action) []step.Action {
	o.cutAt = now
	o.idleCutoffs++
	for sub := range o.arrived {
		out = o.requestMissing(sub, out)
	}
	if o.asked > 0 && o.phase == step.Multicast {
		o.phase, o.times.Fetch, o.askedAt = step.Fetch, now, now
	}
	return out
}

// requestMissing requests the missing chunks of one subgroup. It leaves out claimed chunks: they are being
// written and will soon be in place.
func (o *Collective) requestMissing(sub int, out []step.Action) []step.Action {
	a := &o.arrived[sub]
	if a.missing == 0 {
		return out
	}
	if a.asked == nil {
		a.asked = NewBitmap(a.Len())
	}
	var ranges []wire.Range
	flush := func() {
		if len(ranges) > 0 {
			out = o.send(out, o.left, wire.Msg{Kind: wire.MsgFetch, Sub: uint16(sub), Ranges: ranges})
			ranges = nil
		}
	}
	for i, n := range a.sent {
		if i == a.ownIndex {
			continue
		}
		for at, end := o.g.base[sub][i], o.g.base[sub][i]+n; ; {
			if at = a.NextFree(at, end); at == end {
				break
			}
			stop := a.NextTaken(at, end)
			for at < stop {
				at = a.asked.NextClear(at, stop)
				upto := a.asked.NextSet(at, stop)
				if at < upto {
					a.asked.SetRange(at, upto-at)
					o.asked += upto - at
					if ranges = append(ranges, wire.Range{PSN: at, N: upto - at}); len(ranges) == wire.MaxRanges {
						flush()
					}
				}
				at = upto
			}
		}
	}
	flush()
	return out
}

// serveFetch handles a Fetch of the right neighbour. The neighbour can read chunks in place at once,
// and the others as soon as they are in place. Waiting for all of them would deadlock: with three
// ranks that each miss the other two blocks, each rank waits for its left neighbour.
//
// A chunk is offered once. A correct rank requests it once: it clears the request only when the
// chunk is in place, and then no longer misses the chunk. Offers are reliable and need no repetition.
// A rank that repeats its requests therefore cannot make this rank queue more and more offers.
func (o *Collective) serveFetch(m *wire.Msg, out []step.Action) []step.Action {
	if int(m.Sub) >= len(o.arrived) {
		return out
	}
	sub := int(m.Sub)
	a, f := &o.arrived[sub], &o.fetch[sub]
	if f.requested == nil {
		f.requested = NewBitmap(a.Len())
	}
	var have []wire.Range
	var done uint32
	for _, q := range m.Ranges {
		// Ranges are in order and do not overlap, so each message visits a chunk at most once.
		if q.PSN < done || q.PSN >= a.Len() || q.N > a.Len()-q.PSN {
			continue
		}
		done = q.PSN + q.N
		for at, end := q.PSN, q.PSN+q.N; ; {
			if at = f.requested.NextClear(at, end); at == end {
				break
			}
			stop := f.requested.NextSet(at, end)
			f.requested.SetRange(at, stop-at)
			have = o.offerable(sub, at, stop, have)
			at = stop
		}
	}
	return o.offer(sub, have, out)
}

// offerable appends to have the chunks of [at, end) that are in place, and records the others as
// wanted.
func (o *Collective) offerable(sub int, at, end uint32, have []wire.Range) []wire.Range {
	a, f := &o.arrived[sub], &o.fetch[sub]
	for at < end {
		// A worker may place a chunk concurrently. Its report follows and offers the chunk.
		if stop := a.NextMissing(at, end); stop > at {
			have = append(have, wire.Range{PSN: at, N: stop - at})
			at = stop
			continue
		}
		stop := a.NextInPlace(at, end)
		if f.wanted == nil {
			f.wanted = NewBitmap(a.Len())
		}
		f.wantedCount += f.wanted.SetRange(at, stop-at)
		at = stop
	}
	return have
}

func (o *Collective) offer(sub int, have []wire.Range, out []step.Action) []step.Action {
	for len(have) > 0 {
		n := min(len(have), wire.MaxRanges)
		out = o.send(out, o.right, wire.Msg{Kind: wire.MsgAvail, Sub: uint16(sub), Ranges: have[:n:n]})
		have = have[n:]
	}
	return out
}

// offerPlaced offers chunks that are now in place and that the right neighbour has requested.
func (o *Collective) offerPlaced(sub int, placed []wire.Range, out []step.Action) []step.Action {
	f := &o.fetch[sub]
	if f.wantedCount == 0 {
		return out
	}
	var have []wire.Range
	for _, q := range placed {
		for at, end := q.PSN, q.PSN+q.N; ; {
			if at = f.wanted.NextSet(at, end); at == end {
				break
			}
			stop := f.wanted.NextClear(at, end)
			f.wantedCount -= f.wanted.ClearRange(at, stop-at)
			have = append(have, wire.Range{PSN: at, N: stop - at})
			at = stop
		}
	}
	return o.offer(sub, have, out)
}

// recordOffers records chunks that the left neighbour offers, and starts reads.
func (o *Collective) recordOffers(now step.Time, m *wire.Msg, out []step.Action) []step.Action {
	if int(m.Sub) >= len(o.arrived) {
		return out
	}
	a, f := &o.arrived[m.Sub], &o.fetch[m.Sub]
	if a.asked == nil {
		return out
	}
	if o.askedAt > 0 {
		o.cfg.Est.RoundTrip(now - o.askedAt) // the neighbour sent the first answer at once
		o.askedAt = 0
	}
	for _, q := range m.Ranges {
		if q.PSN >= a.Len() || q.N > a.Len()-q.PSN {
			continue
		}
		for at, end := q.PSN, q.PSN+q.N; ; {
			if at = a.asked.NextSet(at, end); at == end {
				break
			}
			if f.offered == nil {
				f.offered, f.unread = NewBitmap(a.Len()), NewBitmap(a.Len())
			}
			stop := min(a.asked.NextClear(at, end), max(at+1, f.offered.NextSet(at, end)))
			if !f.offered.Has(at) { // no chunk of [at, stop) has been offered
				f.offered.SetRange(at, stop-at)
				f.unreadCount += f.unread.SetRange(at, stop-at)
			}
			at = stop
		}
	}
	return o.pumpReads(out)
}

// pumpReads starts as many reads of offered chunks as may be in flight.
func (o *Collective) pumpReads(out []step.Action) []step.Action {
	for range o.fetch {
		f := &o.fetch[o.fetchSub]
		for f.unreadCount > 0 && o.reads < MaxReads {
			ranges, n := o.nextRead(o.fetchSub)
			if n == 0 {
				break
			}
			o.reads++
			out = append(out, step.Action{Kind: step.ActRead, To: o.left, Sub: o.fetchSub, Ranges: ranges})
		}
		if o.reads == MaxReads {
			return out
		}
		o.fetchSub = (o.fetchSub + 1) % len(o.fetch)
	}
	return out
}

// nextRead takes as many offered chunks as one read covers, n in total. Each range has one owner and
// is therefore contiguous in the receive buffer.
func (o *Collective) nextRead(sub int) (ranges []wire.Range, n uint32) {
	a, f := &o.arrived[sub], &o.fetch[sub]
	limit := uint32(min(max(1, readBytes/o.g.chunk), wire.MaxRanges))
	for f.unreadCount > 0 && n < limit {
		at := f.unread.NextSet(f.next, a.Len())
		if at == a.Len() {
			f.next = 0
			continue
		}
		end := min(f.unread.NextClear(at, a.Len()), o.g.base[sub][o.g.sender(sub, at)+1], at+limit-n)
		// Chunks before from have arrived meanwhile. The kernel program may be writing some of the
		// others and may give up; the worker that claims them for the read waits for that.
		from := a.NextMissing(at, end)
		f.next = a.NextInPlace(from, end)
		f.unreadCount -= f.unread.ClearRange(at, f.next-at)
		if from < f.next {
			ranges = append(ranges, wire.Range{PSN: from, N: f.next - from})
			n += f.next - from
		}
	}
	return ranges, n
}

// handleReadDone handles the end of a read, which has placed the chunks in ranges.
func (o *Collective) handleReadDone(now step.Time, sub int, ranges []wire.Range, out []step.Action) []step.Action {
	a := &o.arrived[sub]
	o.reads--
	n := wire.Chunks(ranges)
	for _, q := range ranges {
		o.asked -= a.asked.ClearRange(q.PSN, q.N)
	}
	if n > 0 {
		a.missing -= n
		o.repaired += uint64(n)
		o.recordProgress(now)
		out = o.offerPlaced(sub, ranges, out)
	}
	return o.settle(now, o.pumpReads(out))
}

func (o *Collective) missing() (n uint32) {
	for i := range o.arrived {
		n += o.arrived[i].missing
	}
	return n
}
