package bench

import (
	"fmt"

	"github.com/allcast/allcast/internal/units"
)

// The settings with which the paper ran OSU's benchmarks (section 6). The defaults of those benchmarks are 1000
// iterations after 100 up to 8K, and 100 after 10 above.
const (
	osuWarmup     = 100
	osuLarge      = 4 << 10 // smallest large size
	osuLargeIters = 100
	osuSmallIters = 1000
)

// The iterations per size without OSU's method, and those before them.
const (
	defaultIters  = 20
	defaultWarmup = 5
)

// Schedule sets the number of iterations. Explicit numbers override those of the method.
func (j *Job) Schedule(iters, warmup *int) {
	j.Iters, j.Warmup = defaultIters, defaultWarmup
	if j.OSU {
		j.Iters, j.Warmup = 0, osuWarmup
	}
	if iters != nil {
		j.Iters = *iters
	}
	if warmup != nil {
		j.Warmup = *warmup
	}
}

// rounds is the number of measured iterations of a size.
func (j *Job) rounds(n int64) int {
	switch {
	case j.Iters > 0:
		return j.Iters
	case n < osuLarge:
		return osuSmallIters
	}
	return osuLargeIters
}

// Timed names the ranks whose times count: all, or the leaves. OSU's method leaves out the root of a Broadcast, which
// may complete before any leaf has data.
func (j *Job) Timed() string {
	if j.OSU && j.operation().Collective == "broadcast" {
		return "leaves"
	}
	return "all"
}

// Iterations describes for people how often each size runs.
func (j *Job) Iterations() string {
	s := fmt.Sprintf("%d iterations", j.Iters)
	if j.Iters == 0 {
		s = fmt.Sprintf("%d iterations below %v and %d from there on", osuSmallIters, units.Size(osuLarge), osuLargeIters)
	}
	return fmt.Sprintf("%s after %d to warm up", s, j.Warmup)
}
