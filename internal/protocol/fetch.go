package protocol

// maxRead is how many chunks one read covers. Short enough for a repaired piece
// to travel on along the ring while the next one is read.
const maxRead = 64

// fetcher is the slow path of one subgroup.
type fetcher struct {
	want    *Bitmap // what our right neighbour asked for and we do not have; nil before the first
	wanting uint32  // how many
	reading uint32  // chunks under read
}

// cutoffAt is when what is missing is taken for lost: N/B + alpha after the last
// sign of progress, N being what has not arrived; alpha alone once everything is
// known to have been sent. It moves with progress, so that a pause for credit or a
// late activation is not mistaken for a loss, and backs off without it.
func (o *Op) cutoffAt() Time {
	if o.missing() == 0 || (o.phase != Multicast && o.phase != Fetch) || o.missing() == o.askedFor() {
		return Never
	}
	rest := int64(0)
	if !o.tree.all {
		rest = int64(o.missing()) * o.g.chunk
	}
	slack := o.cfg.Est.Slack(rest)
	if o.idleCutoffs > 0 {
		slack <<= min(o.idleCutoffs, 20)
	}
	return max(o.barrierAt, o.progressAt, o.allSentAt, o.cutAt) + slack
}

// Queued learns that datagrams wait to be received: that counts as progress.
func (o *Op) Queued(now Time) { o.progressAt = max(o.progressAt, now) }

// cutoff asks the left neighbour for every chunk that was sent and is not here.
func (o *Op) cutoff(now Time, out []Action) []Action {
	o.cutAt = now
	o.idleCutoffs++
	for sub := range o.recv {
		out = o.ask(sub, out)
	}
	if o.askedFor() > 0 && o.phase == Multicast {
		o.phase, o.fetchAt = Fetch, now
	}
	return out
}

func (o *Op) ask(sub int, out []Action) []Action {
	r := &o.recv[sub]
	if r.missing == 0 {
		return out
	}
	if r.asked == nil {
		r.asked, r.busy = NewBitmap(r.bits.Len()), NewBitmap(r.bits.Len())
	}
	var ranges []Range
	flush := func() {
		if len(ranges) > 0 {
			out = o.send(out, o.left, Msg{Kind: MsgFetch, Sub: uint16(sub), Ranges: ranges})
			ranges = nil
		}
	}
	for i, n := range r.sent {
		if i == r.own {
			continue
		}
		at := o.g.base[sub][i]
		end := at + n
		for {
			at = r.bits.NextClear(at, end)
			if at == end {
				break
			}
			stop := r.bits.NextSet(at, end)
			for at < stop {
				at = r.asked.NextClear(at, stop)
				upto := r.asked.NextSet(at, stop)
				if at < upto {
					r.asked.SetRange(at, upto-at)
					ranges = append(ranges, Range{at, upto - at})
					o.asked += upto - at
					if len(ranges) == MaxRanges {
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

// asksUs serves a Fetch of our right neighbour: what we have can be read at
// once, the rest as soon as we have it. To wait until all of it is there would
// deadlock: with three ranks that each miss the other two blocks, each waits for
// its left neighbour round the ring.
func (o *Op) asksUs(m *Msg, out []Action) []Action {
	if int(m.Sub) >= len(o.recv) {
		return out
	}
	sub := int(m.Sub)
	r, f := &o.recv[sub], &o.fetch[sub]
	var have []Range
	var done uint32
	for _, q := range m.Ranges {
		// In order and without overlap, so that the answer is no longer than the bitmap.
		if q.PSN < done || q.PSN >= r.bits.Len() || q.N > r.bits.Len()-q.PSN {
			continue
		}
		done = q.PSN + q.N
		have = o.runs(have, r.bits, sub, q)
		for at, end := q.PSN, q.PSN+q.N; ; {
			at = r.bits.NextClear(at, end)
			if at == end {
				break
			}
			if f.want == nil {
				f.want = NewBitmap(r.bits.Len())
			}
			if f.want.Set(at) {
				f.wanting++
			}
			at++
		}
	}
	return o.offer(sub, have, out)
}

// runs appends the maximal runs of set bits within q, cut so that each can be
// read with one contiguous read: at owners' borders and at maxRead.
func (o *Op) runs(to []Range, b *Bitmap, sub int, q Range) []Range {
	for at, end := q.PSN, q.PSN+q.N; ; {
		at = b.NextSet(at, end)
		if at == end {
			return to
		}
		stop := min(b.NextClear(at, end), o.g.base[sub][o.g.sender(sub, at)+1], at+maxRead)
		to = append(to, Range{at, stop - at})
		at = stop
	}
}

func (o *Op) offer(sub int, have []Range, out []Action) []Action {
	for len(have) > 0 {
		n := min(len(have), MaxRanges)
		out = o.send(out, o.right, Msg{Kind: MsgAvail, Sub: uint16(sub), Ranges: have[:n:n]})
		have = have[n:]
	}
	return out
}

// gained tells our right neighbour about chunks it asked for and we now have.
func (o *Op) gained(sub int, q Range, out []Action) []Action {
	f := &o.fetch[sub]
	if f.wanting == 0 {
		return out
	}
	have := o.runs(nil, f.want, sub, q)
	for _, h := range have {
		f.want.ClearRange(h.PSN, h.N)
		f.wanting -= h.N
	}
	return o.offer(sub, have, out)
}

// available starts reads for what the left neighbour now has and we still miss.
func (o *Op) available(m *Msg, out []Action) []Action {
	if int(m.Sub) >= len(o.recv) {
		return out
	}
	sub := int(m.Sub)
	r, f := &o.recv[sub], &o.fetch[sub]
	for _, q := range m.Ranges {
		if r.asked == nil || q.PSN >= r.bits.Len() || q.N > r.bits.Len()-q.PSN {
			continue
		}
		for at, end := q.PSN, q.PSN+q.N; at < end; {
			if r.bits.Has(at) || r.busy.Has(at) || !r.asked.Has(at) {
				at++
				continue
			}
			owner := o.g.base[sub][o.g.sender(sub, at)+1]
			stop := at + 1
			for stop < min(end, owner, at+maxRead) && !r.bits.Has(stop) && !r.busy.Has(stop) && r.asked.Has(stop) {
				stop++
			}
			r.busy.SetRange(at, stop-at)
			f.reading += stop - at
			out = append(out, Action{Kind: ActRead, To: o.left, Sub: sub, PSN: at, N: stop - at})
			at = stop
		}
	}
	return out
}

// read learns that a read has ended and its bytes are in place.
func (o *Op) read(now Time, sub int, q Range, out []Action) []Action {
	r, f := &o.recv[sub], &o.fetch[sub]
	n := r.bits.SetRange(q.PSN, q.N)
	r.busy.ClearRange(q.PSN, q.N)
	f.reading -= q.N
	r.missing -= n
	o.asked -= n
	o.repaired += uint64(n)
	o.progressAt, o.idleCutoffs = now, 0
	out = o.gained(sub, q, out)
	return o.settle(now, out)
}

func (o *Op) missing() (n uint32) {
	for i := range o.recv {
		n += o.recv[i].missing
	}
	return n
}

// askedFor is how many of the missing chunks were asked of the left neighbour.
func (o *Op) askedFor() uint32 { return o.asked }
