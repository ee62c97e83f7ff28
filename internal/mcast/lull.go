package mcast

import "github.com/allcast/allcast/internal/step"

// A Lull says what a Collective does as long as only its chunks arrive: nothing but to count them. A driver
// may make use of that and report these chunks late, with the times of their arrival, before it calls any
// other method. It may report several chunks as one run, at the time of the last one. It must then report
// the first and the last chunk of each block on time (Placement.Edge), because the Collective measures how
// blocks follow each other.
type Lull struct {
	Chunks uint32 // number of chunks that cause no action; 0 if there is no lull

	missing uint32
	chunk   int64 // size of a chunk on the network
	rate    float64
	alpha   step.Time
}

// Lull returns the current lull. It ends with the next event that is not the arrival of a chunk.
func (o *Collective) Lull() Lull {
	if o.phase != step.Multicast || o.count.missing == 0 || o.cr.on || o.tree.allSent || o.snd.share.held {
		return Lull{}
	}
	for i := range o.fetch.streams {
		if f := &o.fetch.streams[i]; f.asked.Count() > 0 || f.wanted.Count() > 0 {
			return Lull{}
		}
	}
	return Lull{
		Chunks: o.count.missing - 1, missing: o.count.missing, chunk: o.wireSize(1),
		rate: o.cfg.Est.rate, alpha: o.cfg.Est.Alpha(),
	}
}

// Cutoff returns the cutoff once n chunks have arrived, the last one at time now. The Collective's other
// timers do not move during a lull.
func (l *Lull) Cutoff(now step.Time, n uint32) step.Time {
	return now + transferTime(int64(l.missing-n)*l.chunk, l.rate) + l.alpha
}

// Edge reports whether a chunk is the first or the last one of a block in its stream.
func (p *Placement) Edge(psn uint32) bool {
	b, j := p.g.base[p.Stream], p.g.find(p.Stream, psn)
	return psn == b[j] || psn+1 == b[j+1]
}
