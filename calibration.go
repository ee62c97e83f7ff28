package allcast

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/wire"
)

const (
	tooSlow       = 2    // ratio to the fastest choice above which a choice is left out of larger sizes
	closeEnough   = 1.05 // ratio to the fastest choice up to which multicast is preferred
	clearlyFaster = 0.87 // ratio to the time of a choice below which a less likely one is preferred
	proportional  = 8    // ratio of times at the largest and the smallest size from which on the network bounds them
	maxGain       = 1.12 // limit of series.gain
)

// A choice is how a call runs.
type choice struct {
	algo   string
	chains int // mcast; 0: the default
}

// candidates lists the choices that Join measures for a kind of call, the more likely ones first. Algorithms that
// pay off for large operations are left out, because multicast is faster there.
func candidates(kind wire.CallKind, size int) (list []choice) {
	switch kind {
	case wire.Broadcast:
		list = []choice{{engine.Multicast, 1}, {algo: "binomial"}, {algo: "knomial"}}
	case wire.Allgather:
		list = []choice{{engine.Multicast, 1}, {algo: "recursive-doubling"}}
		if size&(size-1) != 0 { // recursive-doubling then takes two more steps
			list[1].algo = "bruck"
		}
		// Two chains hide the time between a rank's last chunk and its successor's first one. A rank receives nothing
		// while it sends its own block, and so loses 1/size of its link's rate, unless all ranks send at once. More
		// chains cost more processor time.
		if size > 2 {
			list = append(list, choice{engine.Multicast, 2})
		}
		if size <= maxThorough { // with more ranks, 1/size is little
			list = append(list, choice{engine.Multicast, size})
		}
	case wire.ReduceScatter, wire.Allreduce:
		list = []choice{{algo: settings.AlgorithmAuto}, {algo: engine.Inc}} // auto: without aggregators, by the cost model
	}
	if size > maxThorough && kind == wire.Broadcast {
		list = list[:2]
	}
	return list
}

// maxThorough is the number of ranks up to which all choices are measured, and not only the most likely ones.
const maxThorough = 16

// point is a measured time.
type point struct {
	bytes int64 // as the algorithm is chosen by
	ns    float64
}

// series holds the times of all choices for one kind of call. It is the same on all ranks.
type series struct {
	choices []choice
	points  [][]point // by choice, with growing sizes
	step    int64     // size above which a multicast begins with a barrier
	size    int       // number of ranks
	gain    float64   // ratio of the times of one chain and of a chain per rank, if the network bounds them
}

func newSeries(kind wire.CallKind, size int) *series {
	s := &series{choices: candidates(kind, size), size: size, gain: min(float64(size)/float64(size-1), maxGain)}
	s.points = make([][]point, len(s.choices))
	return s
}

// expected returns the expected time of choice i: constant below its first point, and interpolated between points.
// Above its last point the time grows as between the last two.
func (s *series) expected(i int, bytes int64) float64 {
	p := s.points[i]
	switch {
	case len(p) == 0:
		return math.Inf(1)
	case len(p) == 1 || bytes <= p[0].bytes:
		return p[0].ns
	}
	to := 1
	for to < len(p)-1 && bytes > p[to].bytes {
		to++
	}
	from := p[to-1]
	if from.bytes == s.step && s.choices[i].algo == engine.Multicast {
		from.ns = p[to].ns
	}
	slope := max(0, p[to].ns-from.ns) / float64(p[to].bytes-from.bytes)
	return from.ns + slope*float64(bytes-from.bytes)
}

// dropped reports whether a choice was left out of a size at which another point-to-point choice took part.
func (s *series) dropped(i int) bool {
	for k, c := range s.choices {
		if c.algo != engine.Multicast && s.last(k) > s.last(i) {
			return true
		}
	}
	return false
}

// last returns the largest size of a choice.
func (s *series) last(i int) int64 {
	if len(s.points[i]) == 0 {
		return 0
	}
	return s.points[i][len(s.points[i])-1].bytes
}

// largest returns the largest size of all choices.
func (s *series) largest() (bytes int64) {
	for i := range s.choices {
		bytes = max(bytes, s.last(i))
	}
	return bytes
}

// fastest returns the index of the choice with the shortest expected time, or -1. A choice that was left out of larger
// sizes is no candidate for them. Of point-to-point choices that differ little, it returns the first, so that noise
// does not decide.
func (s *series) fastest(bytes int64) (best int) {
	best = -1
	for i, c := range s.choices {
		if len(s.points[i]) == 0 || bytes > s.last(i) && s.dropped(i) {
			continue
		}
		margin := 1.0
		if best >= 0 && c.algo != engine.Multicast && s.choices[best].algo != engine.Multicast {
			margin = clearlyFaster
		}
		if best < 0 || s.expected(i, bytes) < margin*s.expected(best, bytes) {
			best = i
		}
	}
	return best
}

// fastestMulticast returns the index of the fastest multicast, or -1. Above the largest size, where times cannot be
// compared, a chain per rank is taken if it may pay off there.
func (s *series) fastestMulticast(bytes int64) (best int) {
	best = -1
	for i, c := range s.choices {
		if c.algo != engine.Multicast || len(s.points[i]) == 0 {
			continue
		}
		at, margin := bytes, 1.0
		if best >= 0 && bytes >= s.last(i) {
			at = s.last(i)
			if s.bounded(best) && c.chains == s.size {
				margin = s.gain
			}
		}
		if best < 0 || s.expected(i, at) < margin*s.expected(best, at) {
			best = i
		}
	}
	return best
}

// bounded reports whether the network seems to bound the rate of a choice: its time at its largest size is nearly
// proportional to the bytes. All ranks sending at once then gain at larger sizes. The largest measured size does not
// show that, if the switches buffer what a rank does not receive while it sends.
func (s *series) bounded(i int) bool {
	p := s.points[i]
	return p[len(p)-1].ns > proportional*p[0].ns
}

// best returns the choice with the shortest expected time. It prefers multicast that takes about as long, and above
// the largest size: the network and the memory determine the time there, and multicast moves every byte once.
func (s *series) best(bytes int64) choice {
	best, mcast := s.fastest(bytes), s.fastestMulticast(bytes)
	if mcast >= 0 && (s.expected(mcast, bytes) <= closeEnough*s.expected(best, bytes) || bytes > s.largest()) {
		best = mcast
	}
	return s.choices[best]
}

// promising lists the choices that may be the fastest at a size larger than all others so far, and their expected
// time in total. A choice is left out if it already takes much longer at a smaller size, once two sizes show how times
// grow, or if the total would exceed the limit, in ns. Multicast comes first and stays, because it pays off at large
// sizes.
func (s *series) promising(bytes int64, limit float64) (list []int, total float64) {
	best := s.fastest(bytes)
	for _, multicast := range []bool{true, false} {
		for i, c := range s.choices {
			if multicast != (c.algo == engine.Multicast) {
				continue
			}
			ns := 0.0
			if best >= 0 {
				ns = s.expected(i, bytes)
			}
			grown := len(s.points[i]) > 1 && s.points[i][len(s.points[i])-1].ns > tooSlow*s.expected(best, bytes)
			if multicast || !s.dropped(i) && !grown && total+ns <= limit {
				list, total = append(list, i), total+ns
			}
		}
	}
	return list, total
}

// add adds the times of some choices at a size larger than all others, by choice and repetition. The mean of the
// faster half is what a choice takes, because a repetition that something else disturbed must not count.
func (s *series) add(bytes int64, list []int, times [][]float64) {
	for k, i := range list {
		slices.Sort(times[k])
		half := times[k][:(len(times[k])+1)/2]
		sum := 0.0
		for _, ns := range half {
			sum += ns
		}
		s.points[i] = append(s.points[i], point{bytes, sum / float64(len(half))})
	}
}

// remove takes choices out of the series, with their times.
func (s *series) remove(list []choice) {
	for _, c := range list {
		if i := slices.Index(s.choices, c); i >= 0 {
			s.choices, s.points = slices.Delete(s.choices, i, i+1), slices.Delete(s.points, i, i+1)
		}
	}
}

// String lists the points for a log.
func (s *series) String() string {
	var b strings.Builder
	for i, c := range s.choices {
		fmt.Fprintf(&b, "%s/%d", c.algo, c.chains)
		for _, p := range s.points[i] {
			fmt.Fprintf(&b, " %d:%.0fus", p.bytes, p.ns/1e3)
		}
		b.WriteString("; ")
	}
	return strings.TrimSuffix(b.String(), "; ")
}

// calibration holds the series of all kinds of calls that Join has measured.
type calibration struct {
	size   int // ranks of the world
	series map[wire.CallKind]*series
}

// of returns the series for a call on a communicator with the given number of ranks, or nil. A communicator that is
// much smaller than the world behaves differently.
func (c *calibration) of(kind wire.CallKind, size int) *series {
	if c == nil || 2*size <= c.size {
		return nil
	}
	return c.series[kind]
}

// chains returns the best number of chains for a multicast, 1 without a measurement.
func (c *calibration) chains(kind wire.CallKind, size int, bytes int64) int {
	s := c.of(kind, size)
	if s == nil {
		return 1
	}
	if best := s.fastestMulticast(bytes); best >= 0 {
		return s.choices[best].chains
	}
	return 1
}
