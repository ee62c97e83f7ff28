package mcast

import (
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// The slow path. A rank asks its left neighbour for chunks that were sent and are not here. The
// neighbour offers each of them as soon as it has it. The rank remembers what was offered, and
// reads it in long requests of which only a few are under way, however much was lost.
const (
	// readBytes is what one read covers: enough to be worth a message, little enough for repaired
	// chunks to travel on along the ring while the next ones are read. It also covers at most
	// MaxRanges chunks, so that however they are scattered they are few enough pieces of memory.
	readBytes = 256 << 10
	// MaxReads is how many reads of a Collective are under way at most: while one is answered, the next
	// is on its way, and the receive worker claims a third.
	MaxReads = 4
)

// fetcher is the slow path of one subgroup.
type fetcher struct {
	askedUs *Bitmap // chunks that our right neighbour has asked for; nil before the first
	want    *Bitmap // of these, chunks that we do not have; nil before the first
	wanting uint32  // how many
	offered *Bitmap // chunks that our left neighbour has had for us, of those we asked for; nil before the first
	unread  *Bitmap // of these, chunks that no read was started for; likewise
	offers  uint32  // how many
	next    uint32  // where the next read begins to look
}

// cutoffAt is when what is missing is taken for lost: N/B + alpha after the last
// sign of progress, N being what has not arrived. It moves with progress, so
// that a pause for credit or a late activation is not mistaken for a loss, and backs
// off without it. Once everything is known to have been sent it is sooner: that news
// took at least as long as the last datagrams had to, so only as much as may be on its
// way at once is waited for.
func (o *Collective) cutoffAt() step.Time {
	missing := o.missing()
	if missing == 0 || (o.phase != step.Multicast && o.phase != step.Fetch) || missing == o.asked {
		return step.Never
	}
	slack := o.cfg.Est.Slack(int64(missing) * o.wire())
	if o.tree.all {
		slack = o.cfg.Est.Transit(o.underWay(missing) * o.wire())
	}
	if o.idleCutoffs > 0 {
		slack <<= min(o.idleCutoffs, 20)
	}
	return max(o.barrierAt, o.progressAt, o.allSentAt, o.cutAt) + slack
}

// underWay is how many of the missing chunks may be on their way.
func (o *Collective) underWay(missing uint32) int64 {
	if o.cfg.Pool == nil {
		return int64(missing)
	}
	return min(int64(missing), int64(o.cfg.Pool.size))
}

// Queued learns that datagrams wait to be received: that counts as progress, and what was announced
// as sent may be among them. But once as many datagrams were taken as the queue holds, what waited
// when the Collective last got on, or heard that chunks were sent, is not there any more: what waits now is
// other operations', and may be so for ever.
func (o *Collective) Queued(now step.Time) {
	if p := o.cfg.Pool; o.cr.on && p.taken.Count()-o.knownTaken >= p.size {
		return
	}
	o.progressAt = max(o.progressAt, now)
	if c := &o.cr; c.noted {
		c.notedAt = max(c.notedAt, now)
	}
}

// progress notes that chunks have come.
func (o *Collective) progress(now step.Time) {
	o.progressAt, o.idleCutoffs = now, 0
	o.known()
}

// known notes how many datagrams were taken when the Collective last learned what came or was sent.
func (o *Collective) known() {
	if o.cr.on {
		o.knownTaken = o.cfg.Pool.taken.Count()
	}
}

// cutoff asks the left neighbour for every chunk that was sent and is not here.
func (o *Collective) cutoff(now step.Time, out []step.Action) []step.Action {
	o.cutAt = now
	o.idleCutoffs++
	for sub := range o.arrived {
		out = o.ask(sub, out)
	}
	if o.asked > 0 && o.phase == step.Multicast {
		o.phase, o.fetchAt, o.askedAt = step.Fetch, now, now
	}
	return out
}

// ask asks for the chunks of one subgroup. Those that somebody is writing just now are not asked
// for: they are in place soon.
func (o *Collective) ask(sub int, out []step.Action) []step.Action {
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

// asksUs serves a Fetch of our right neighbour: it can read at once what is in place here, and the
// rest as soon as it is. To wait until all of it is there would deadlock: with three ranks that
// each miss the other two blocks, each waits for its left neighbour round the ring.
//
// A chunk is offered once. A correct rank asks for it once: it forgets that it has asked only when the
// chunk is in place, and then does not miss it any more. Offers arrive, so none has to be repeated. A
// rank that asks again and again thus cannot make us queue offers that it need not read.
func (o *Collective) asksUs(m *wire.Msg, out []step.Action) []step.Action {
	if int(m.Sub) >= len(o.arrived) {
		return out
	}
	sub := int(m.Sub)
	a, f := &o.arrived[sub], &o.fetch[sub]
	if f.askedUs == nil {
		f.askedUs = NewBitmap(a.Len())
	}
	var have []wire.Range
	var done uint32
	for _, q := range m.Ranges {
		// In order and without overlap, so that we look at each chunk at most once for a message.
		if q.PSN < done || q.PSN >= a.Len() || q.N > a.Len()-q.PSN {
			continue
		}
		done = q.PSN + q.N
		for at, end := q.PSN, q.PSN+q.N; ; {
			if at = f.askedUs.NextClear(at, end); at == end {
				break
			}
			stop := f.askedUs.NextSet(at, end)
			f.askedUs.SetRange(at, stop-at)
			have = o.offerable(sub, at, stop, have)
			at = stop
		}
	}
	return o.offer(sub, have, out)
}

// offerable appends to have those of the chunks [at, end) that are in place here, and notes the others as
// wanted.
func (o *Collective) offerable(sub int, at, end uint32, have []wire.Range) []wire.Range {
	a, f := &o.arrived[sub], &o.fetch[sub]
	for at < end {
		// A chunk may be placed while we look: its report comes later and offers it.
		if stop := a.NextMissing(at, end); stop > at {
			have = append(have, wire.Range{PSN: at, N: stop - at})
			at = stop
			continue
		}
		stop := a.NextInPlace(at, end)
		if f.want == nil {
			f.want = NewBitmap(a.Len())
		}
		f.wanting += f.want.SetRange(at, stop-at)
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

// gained tells our right neighbour about chunks it asked for and we now have.
func (o *Collective) gained(sub int, gained []wire.Range, out []step.Action) []step.Action {
	f := &o.fetch[sub]
	if f.wanting == 0 {
		return out
	}
	var have []wire.Range
	for _, q := range gained {
		for at, end := q.PSN, q.PSN+q.N; ; {
			if at = f.want.NextSet(at, end); at == end {
				break
			}
			stop := f.want.NextClear(at, end)
			f.wanting -= f.want.ClearRange(at, stop-at)
			have = append(have, wire.Range{PSN: at, N: stop - at})
			at = stop
		}
	}
	return o.offer(sub, have, out)
}

// available remembers chunks that the left neighbour now has, and reads them in turn.
func (o *Collective) available(now step.Time, m *wire.Msg, out []step.Action) []step.Action {
	if int(m.Sub) >= len(o.arrived) {
		return out
	}
	a, f := &o.arrived[m.Sub], &o.fetch[m.Sub]
	if a.asked == nil {
		return out
	}
	if o.askedAt > 0 {
		o.cfg.Est.RoundTrip(now - o.askedAt) // the first answer came at once
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
			if !f.offered.Has(at) { // none of them was
				f.offered.SetRange(at, stop-at)
				f.offers += f.unread.SetRange(at, stop-at)
			}
			at = stop
		}
	}
	return o.pumpReads(out)
}

// pumpReads starts reads of what was offered, as many as may be under way.
func (o *Collective) pumpReads(out []step.Action) []step.Action {
	for range o.fetch {
		f := &o.fetch[o.fetchSub]
		for f.offers > 0 && o.reads < MaxReads {
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

// nextRead takes as many offered chunks as one read covers, n in all. Each range is of one owner,
// so that it is one piece of the receive buffer.
func (o *Collective) nextRead(sub int) (ranges []wire.Range, n uint32) {
	a, f := &o.arrived[sub], &o.fetch[sub]
	most := uint32(min(max(1, readBytes/o.g.chunk), wire.MaxRanges))
	for f.offers > 0 && n < most {
		at := f.unread.NextSet(f.next, a.Len())
		if at == a.Len() {
			f.next = 0
			continue
		}
		end := min(f.unread.NextClear(at, a.Len()), o.g.base[sub][o.g.sender(sub, at)+1], at+most-n)
		// Those before it have come meanwhile. A program in the kernel may be writing some of the others,
		// and give up: whoever claims them for the read waits for that.
		from := a.NextMissing(at, end)
		f.next = a.NextInPlace(from, end)
		f.offers -= f.unread.ClearRange(at, f.next-at)
		if from < f.next {
			ranges = append(ranges, wire.Range{PSN: from, N: f.next - from})
			n += f.next - from
		}
	}
	return ranges, n
}

// read learns that a read has ended, and which chunks it has put in place.
func (o *Collective) read(now step.Time, sub int, ranges []wire.Range, out []step.Action) []step.Action {
	a := &o.arrived[sub]
	o.reads--
	n := wire.Chunks(ranges)
	for _, q := range ranges {
		o.asked -= a.asked.ClearRange(q.PSN, q.N)
	}
	if n > 0 {
		a.missing -= n
		o.repaired += uint64(n)
		o.progress(now)
		out = o.gained(sub, ranges, out)
	}
	return o.settle(now, o.pumpReads(out))
}

func (o *Collective) missing() (n uint32) {
	for i := range o.arrived {
		n += o.arrived[i].missing
	}
	return n
}
