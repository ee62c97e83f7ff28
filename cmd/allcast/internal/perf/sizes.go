package perf

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/units"
)

// sizes lists the sizes from -b to -e, multiplied by -f.
func (c *sizeFlags) sizes() ([]int64, error) {
	first, last := int64(4<<10), int64(1<<20)
	if c.Max != nil {
		last = int64(*c.Max)
		first = min(first, last)
	}
	if c.Min != nil {
		first = int64(*c.Min)
		if c.Max == nil {
			if c.Factor != nil {
				return nil, cli.Usagef("-f %d has no effect on one size: give the largest size with -e", *c.Factor)
			}
			last = first
		}
	}
	if first > last {
		return nil, cli.Usagef("-b %v is more than -e %v", units.Size(first), units.Size(last))
	}
	factor := int64(value(c.Factor, 4))
	var list []int64
	for n := first; n <= last; {
		list = append(list, n)
		switch {
		case n == 0:
			n = 1
		case n > math.MaxInt64/factor:
			return list, nil
		default:
			n *= factor
		}
	}
	return list, nil
}

// round rounds the sizes of a reduction down to whole elements.
func (j *job) round() {
	if !j.Reduces() {
		return
	}
	for i, n := range j.sizes {
		j.sizes[i] = n - n%int64(j.DType.Size())
	}
	j.sizes = slices.Compact(j.sizes)
}

// fits refuses jobs that need more memory than is free: the kernel would kill a process without an explanation.
func (j *job) fits(ranks int) error {
	have, ok := availableMemory()
	if !ok {
		return nil
	}
	if need := j.Memory(ranks, slices.Max(j.sizes)); need > float64(have) {
		return cli.Usagef("%d ranks with %v need %.1f GiB of memory, but %.1f GiB are free: "+
			"want fewer ranks (--ranks) or smaller sizes (-b, -e)",
			ranks, units.Size(slices.Max(j.sizes)), need/(1<<30), float64(have)/(1<<30))
	}
	return nil
}

// availableMemory is known on Linux only.
func availableMemory() (bytes int64, ok bool) {
	text, ok := cli.ProcField("/proc/meminfo", "MemAvailable")
	kib, err := strconv.ParseInt(strings.TrimSuffix(text, " kB"), 10, 64)
	return kib << 10, ok && err == nil
}
