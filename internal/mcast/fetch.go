package mcast

import (
	"slices"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

const (
	// readBytes limits the size of one read. It is large enough to be worth a message. It is
	// small enough for repaired chunks to travel on while the rank reads the next ones.
	// One read also covers at most MaxRanges chunks, to limit the number of pieces of memory.
	readBytes = 256 << 10
	// MaxReads limits the reads in flight per Collective. While the neighbour answers one read,
	// the next request is in transit, and the receive worker claims chunks for a third.
	MaxReads = 4
)

// recovery is the slow path. A rank asks its left neighbour for chunks that were sent but have not
// arrived. The neighbour offers each chunk as soon as it has it. The rank records the offers and reads
// the chunks in long requests. Only a few requests are in flight, however many chunks were lost.
type recovery struct {
	streams []fetcher
	askedAt step.Time // time of the first request, until the neighbour answers it
	reads   int       // reads in progress
	next    int       // stream of the next read
}

// asked returns how many missing chunks this rank has requested.
func (r *recovery) asked() (n uint32) {
	for i := range r.streams {
		n += r.streams[i].asked.Count()
	}
	return n
}

// fetcher is the slow path of one stream. Its bitmaps take no memory before the first loss.
type fetcher struct {
	*Placement
	asked   Bitmap // missing chunks requested from the left neighbour
	offered Bitmap // requested chunks that the left neighbour has offered
	unread  Bitmap // offered chunks for which no read has started
	next    uint32 // chunk at which the next read starts its search

	requested Bitmap // chunks that the right neighbour has requested
	wanted    Bitmap // requested chunks that this rank does not have yet
}

func newFetcher(p *Placement) fetcher {
	b := Bitmap{n: p.Len()}
	return fetcher{Placement: p, asked: b, offered: b, unread: b, requested: b, wanted: b}
}

// request returns the chunks to request: they were sent, and are neither in place nor requested. It
// leaves out claimed chunks: they are being written and will soon be in place.
func (f *fetcher) request(sent []uint32) (ranges []wire.Range) {
	for j, n := range sent {
		for free := range runs(wire.Range{PSN: f.g.base[f.Stream][j], N: n}, f.NextFree, f.NextTaken) {
			for q := range runs(free, f.asked.NextClear, f.asked.NextSet) {
				f.asked.SetRange(q.PSN, q.N)
				ranges = append(ranges, q)
			}
		}
	}
	return ranges
}

// serve handles a request of the right neighbour. It returns the chunks that the neighbour can read at
// once. The neighbour can read the others as soon as they are in place. Waiting for all of them would
// deadlock: with three ranks that each miss the other two blocks, each rank waits for its left neighbour.
//
// A chunk is offered once. A correct rank requests it once: it clears the request only when the
// chunk is in place, and then no longer misses the chunk. Offers are reliable and need no repetition.
// A rank that repeats its requests therefore cannot make this rank queue more and more offers.
func (f *fetcher) serve(ranges []wire.Range) (have []wire.Range) {
	var done uint32
	for _, q := range ranges {
		// Ranges are in order and do not overlap, so each message visits a chunk at most once.
		if q.PSN < done || !f.contains(q) {
			continue
		}
		done = q.PSN + q.N
		for fresh := range runs(q, f.requested.NextClear, f.requested.NextSet) {
			f.requested.SetRange(fresh.PSN, fresh.N)
			// A worker may place a wanted chunk concurrently. Its report follows and offers the chunk.
			for missing := range runs(fresh, f.NextMissing, f.NextInPlace) {
				f.wanted.SetRange(missing.PSN, missing.N)
			}
			for placed := range runs(fresh, f.wanted.NextClear, f.wanted.NextSet) {
				have = append(have, placed)
			}
		}
	}
	return have
}

// takeWanted returns the chunks of placed that the right neighbour waits for.
func (f *fetcher) takeWanted(placed []wire.Range) (have []wire.Range) {
	for _, q := range placed {
		for run := range runs(q, f.wanted.NextSet, f.wanted.NextClear) {
			f.wanted.ClearRange(run.PSN, run.N)
			have = append(have, run)
		}
	}
	return have
}

// recordOffers records requested chunks that the left neighbour offers for the first time.
func (f *fetcher) recordOffers(ranges []wire.Range) {
	for _, q := range ranges {
		if !f.contains(q) {
			continue
		}
		for asked := range runs(q, f.asked.NextSet, f.asked.NextClear) {
			for fresh := range runs(asked, f.offered.NextClear, f.offered.NextSet) {
				f.offered.SetRange(fresh.PSN, fresh.N)
				f.unread.SetRange(fresh.PSN, fresh.N)
			}
		}
	}
}

// contains reports whether the stream has all chunks of a range, which a peer has sent.
func (f *fetcher) contains(q wire.Range) bool { return q.PSN < f.Len() && q.N <= f.Len()-q.PSN }

// nextRead takes as many offered chunks as one read covers. Each range has one owner and is therefore
// contiguous in the receive buffer.
func (f *fetcher) nextRead() (ranges []wire.Range) {
	left := uint32(min(max(1, readBytes/f.g.chunk), wire.MaxRanges))
	for f.unread.Count() > 0 && left > 0 {
		at := f.unread.NextSet(f.next, f.Len())
		if at == f.Len() {
			f.next = 0
			continue
		}
		end := min(f.unread.NextClear(at, f.Len()), f.g.base[f.Stream][f.g.find(f.Stream, at)+1], at+left)
		// Chunks before from have arrived meanwhile. The kernel program may be writing some of the
		// others and may give up; the worker that claims them for the read waits for that.
		from := f.NextMissing(at, end)
		f.next = f.NextInPlace(from, end)
		f.unread.ClearRange(at, f.next-at)
		if from < f.next {
			ranges = append(ranges, wire.Range{PSN: from, N: f.next - from})
			left -= f.next - from
		}
	}
	return ranges
}

// offerPlaced offers chunks that are now in place and that the right neighbour has requested.
func (o *Collective) offerPlaced(stream int, placed []wire.Range, out []step.Action) []step.Action {
	return o.sendRanges(out, o.right, wire.MsgAvail, stream, o.fetch.streams[stream].takeWanted(placed))
}

// sendRanges sends a list of chunks in as many messages as it needs.
func (o *Collective) sendRanges(
	out []step.Action, to int, kind wire.MsgKind, stream int, ranges []wire.Range,
) []step.Action {
	for part := range slices.Chunk(ranges, wire.MaxRanges) {
		out = o.send(out, to, wire.Msg{Kind: kind, Stream: uint16(stream), Ranges: part})
	}
	return out
}

// handleOffers handles the left neighbour's offers and starts reads.
func (o *Collective) handleOffers(now step.Time, m *wire.Msg, out []step.Action) []step.Action {
	if o.fetch.askedAt > 0 {
		o.cfg.Est.RoundTrip(now - o.fetch.askedAt) // the neighbour sent the first answer at once
		o.fetch.askedAt = 0
	}
	o.fetch.streams[m.Stream].recordOffers(m.Ranges)
	return o.pumpReads(out)
}

// pumpReads starts as many reads of offered chunks as may be in flight.
func (o *Collective) pumpReads(out []step.Action) []step.Action {
	r := &o.fetch
	for range r.streams {
		for r.reads < MaxReads {
			ranges := r.streams[r.next].nextRead()
			if ranges == nil {
				break
			}
			r.reads++
			out = append(out, step.Action{Kind: step.ActRead, To: o.left, Stream: r.next, Ranges: ranges})
		}
		if r.reads == MaxReads {
			return out
		}
		r.next = (r.next + 1) % len(r.streams)
	}
	return out
}

// handleReadDone handles the end of a read, which has placed the chunks in ranges.
func (o *Collective) handleReadDone(now step.Time, stream int, ranges []wire.Range, out []step.Action) []step.Action {
	o.fetch.reads--
	for _, q := range ranges {
		o.fetch.streams[stream].asked.ClearRange(q.PSN, q.N)
	}
	if n := wire.Chunks(ranges); n > 0 {
		o.count.missing -= n
		o.stats.Repaired += uint64(n)
		o.recordProgress(now)
		out = o.offerPlaced(stream, ranges, out)
	}
	return o.settle(now, o.pumpReads(out))
}
