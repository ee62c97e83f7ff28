package inc

import (
	"cmp"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// fetchBytes limits the contributions of all ranks that one fetch reads. A fetch reads at least one chunk of all ranks,
// even if that is more.
const fetchBytes = 4 << 20

// fetchSize returns the number of bytes that a fetch reads for each chunk.
func (o *Op) fetchSize() int64 { return int64(o.red.Chunk) * int64(max(1, o.red.Size-1)) }

// maxFetches limits the fetches in flight. While one is added, the next one is read. An owner therefore has at most
// 2*fetchBytes in flight, or one chunk of every other rank if that is more.
func (o *Op) maxFetches() int {
	if o.fetchSize() > fetchBytes {
		return 1
	}
	return 2
}

// startFetching lets this rank fetch all its missing chunks.
func (o *Op) startFetching(now step.Time) {
	o.repair.fetchNext = o.repair.have
	if o.phase == step.Transfer {
		o.phase = step.Fetch
		o.times.Fetch = now
	}
}

// pumpFetches starts as many fetches as may be in flight.
func (o *Op) pumpFetches(now step.Time, out []step.Action) []step.Action {
	r := &o.repair
	for r.fetching < o.maxFetches() && r.have < o.chunks {
		q := o.nextFetch()
		if q.N == 0 {
			break
		}
		if o.times.Fetch == 0 {
			o.times.Fetch = now
		}
		if r.fetching++; r.fetching == 1 {
			r.fetchAt = now
		}
		out = append(out, step.Action{Kind: step.ActFetch, PSN: q.PSN, N: q.N})
	}
	return out
}

// nextFetch returns the next chunks to fetch.
func (o *Op) nextFetch() (q wire.Range) {
	r := &o.repair
	limit := uint32(max(1, fetchBytes/o.fetchSize()))
	if !o.aggregated {
		first := o.record.NextFree(r.fetchNext, o.chunks)
		q = wire.Range{PSN: first, N: min(limit, o.chunks-first)}
		r.fetchNext = q.PSN + q.N
		return q
	}
	for len(r.queue) > 0 {
		head := &r.queue[0]
		first := o.record.NextFree(head.PSN, head.PSN+head.N)
		n := min(limit, head.PSN+head.N-first)
		head.N -= first + n - head.PSN
		head.PSN = first + n
		if head.N == 0 {
			r.queue = r.queue[1:]
		}
		if n > 0 {
			return wire.Range{PSN: first, N: n}
		}
	}
	return q
}

// recordFetched notes the end of a fetch.
func (o *Op) recordFetched(now step.Time, ranges []wire.Range) {
	r := &o.repair
	if r.fetching == 0 {
		return
	}
	r.fetching--
	r.alive = true
	made := uint32(0)
	for _, q := range ranges {
		for nth := q.PSN; nth < min(q.PSN+q.N, o.chunks); nth++ {
			if o.record.ForRead(nth) {
				made++
			}
		}
	}
	o.stats.Repaired += uint64(made)
	if o.aggregated {
		r.fetched += made
		o.compare(now-r.fetchAt, made)
	}
	r.fetchAt = now
}

// patienceFactor is how much more slowly sums may arrive than fetches would bring them.
const patienceFactor = 8

// compare learns how long a fetch takes. If that is short and sums are far behind, the aggregators are too slow. If it
// is long, a rank is slow, and the aggregators wait for it as the fetch did.
func (o *Op) compare(took step.Time, chunks uint32) {
	r := &o.repair
	if chunks == 0 {
		return
	}
	r.fetchTime = max(1, took/step.Time(chunks))
	if took >= o.cfg.Limits.Silent/patienceFactor {
		r.behind = 0
	}
	r.slow = r.behind >= o.cfg.Limits.Silent
}

// waits reports whether this rank waits for sums that other ranks may have sent.
func (o *Op) waits() bool {
	return o.aggregated && o.repair.fetching == 0 && o.repair.have < o.granted()
}

// catchUp notes that sums have arrived. Each one makes up for the time in which several could have been fetched. Before
// the first fetch, it makes up for the time of a message and its answer: a fetch that was not needed costs little.
func (o *Op) catchUp(sums uint32) {
	r := &o.repair
	each := min(cmp.Or(patienceFactor*r.fetchTime, o.cfg.Alpha()), o.cfg.Limits.Silent)
	r.behind -= min(r.behind, each*step.Time(min(sums, 1<<16)))
}

// maxBehind returns how late sums may be before this rank fetches one chunk to compare: at first only to learn how long
// that takes, and later to decide.
func (o *Op) maxBehind() step.Time {
	if o.repair.fetchTime == 0 {
		return o.cfg.Limits.Silent / 2
	}
	return o.cfg.Limits.Silent
}

// probeFetch fetches one chunk if sums are far behind.
func (o *Op) probeFetch() {
	if r := &o.repair; o.waits() && len(r.queue) == 0 && r.behind >= o.maxBehind() {
		if first := o.record.NextFree(r.have, o.granted()); first < o.granted() {
			r.queue = appendChunk(r.queue, first)
		}
	}
}
