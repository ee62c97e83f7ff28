package main

import (
	"fmt"

	"github.com/allcast/allcast/internal/units"
)

// What the paper says it ran OSU's benchmarks with (section 6). Their own defaults are 1000
// iterations after 100 up to 8K, and 100 after 10 above.
const (
	osuWarmup = 100
	osuLarge  = 4 << 10 // from this size on
	osuFew    = 100     // iterations, and
	osuMany   = 1000    // so many below it
)

const (
	perfIters  = 20
	perfWarmup = 0
)

// schedule settles how often each size runs: what was given counts, whatever the method.
func (j *perfJob) schedule(iters, warmup *int) {
	j.iters, j.warmup = perfIters, perfWarmup
	if j.osu {
		j.iters, j.warmup = 0, osuWarmup
	}
	if iters != nil {
		j.iters = *iters
	}
	if warmup != nil {
		j.warmup = *warmup
	}
}

// rounds is how many iterations of a size are measured.
func (j *perfJob) rounds(n int64) int {
	switch {
	case j.iters > 0:
		return j.iters
	case n < osuLarge:
		return osuMany
	}
	return osuFew
}

// timed names the ranks whose times count. OSU's way leaves the root of a
// Broadcast out: it may be done before anybody has anything.
func (j *perfJob) timed() string {
	if j.osu && j.op == "broadcast" {
		return "leaves"
	}
	return "all"
}

// often says for people how often each size runs.
func (j *perfJob) often() string {
	s := fmt.Sprintf("%d iterations", j.iters)
	if j.iters == 0 {
		s = fmt.Sprintf("%d iterations below %v and %d from there on", osuMany, units.Size(osuLarge), osuFew)
	}
	return fmt.Sprintf("%s after %d to warm up", s, j.warmup)
}
