package main

import (
	"context"
	"math"
	"slices"

	"github.com/allcast/allcast"
)

// perfResult is one line of output: an operation, an algorithm and a size.
type perfResult struct {
	Op             string    `json:"op"`
	Algo           string    `json:"algo"`
	Requested      string    `json:"requested"` // the algorithm asked for: auto, or the same
	Fabric         string    `json:"fabric"`
	Datapath       string    `json:"datapath"`
	Hook           string    `json:"hook"`
	Ranks          int       `json:"ranks"`
	Bytes          int64     `json:"bytes"`
	Iters          int       `json:"iters"`
	Warmup         int       `json:"warmup"`
	Timed          string    `json:"timed"` // whose times count: all, or the leaves
	Time           perfTimes `json:"time_us"`
	AlgBW          float64   `json:"algbw_gbps"`
	BusBW          float64   `json:"busbw_gbps"`
	Wrong          int64     `json:"wrong"`
	Chains         int       `json:"chains"`
	Subgroups      int       `json:"subgroups"`
	Chunk          int       `json:"chunk"`
	ChunksTotal    uint64    `json:"chunks_total"`
	Dropped        int64     `json:"dropped_chunks"`
	Duplicates     int64     `json:"duplicate_chunks"`
	Copied         int64     `json:"copied_chunks"`
	Corrupt        int64     `json:"corrupt_chunks"`
	SentBytes      int64     `json:"sent_bytes"`
	McastBytes     int64     `json:"mcast_bytes"`
	RepairedBytes  int64     `json:"repaired_bytes"`
	UserCPU        float64   `json:"user_cpu_us"`
	SysCPU         float64   `json:"sys_cpu_us"`
	Overlap        *float64  `json:"overlap_pct"` // null: not measured
	Secure         bool      `json:"secure"`
	Integrity      bool      `json:"integrity"`
	FallbackReason string    `json:"fallback_reason"`
}

type perfTimes struct {
	Avg float64 `json:"avg"`
	Min float64 `json:"min"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// barriers is how many there are in an iteration besides the operation.
func (j *perfJob) barriers() float64 {
	if j.check {
		return 2
	}
	return 1
}

// gather makes one result of what all ranks saw; all get it.
func (b *perfBench) gather(ctx context.Context, c *perfCase, t *tally) (*perfResult, error) {
	iters := float64(c.rounds)
	delta := func(f func(allcast.Stats) uint64) int64 { return int64(f(t.after) - f(t.before)) }
	sent := float64(delta(func(s allcast.Stats) uint64 { return s.SentBytes }))/iters - b.barrier*c.barriers()
	mcast := float64(delta(func(s allcast.Stats) uint64 { return s.McastBytes })) / iters
	most := append([]int64{int64(math.Round(max(0, sent))), int64(math.Round(mcast))}, b.counted(c, t)...)
	sums := []int64{
		t.wrong, t.user, t.sys, total(t.times), t.overlap.compute, t.overlap.both,
		delta(func(s allcast.Stats) uint64 { return s.DroppedChunks }),
		delta(func(s allcast.Stats) uint64 { return s.DuplicateChunks }),
		delta(func(s allcast.Stats) uint64 { return s.CopiedChunks }),
		delta(func(s allcast.Stats) uint64 { return s.RepairedBytes }),
		delta(func(s allcast.Stats) uint64 { return s.CorruptChunks }),
	}
	if err := b.max(ctx, most); err != nil {
		return nil, err
	}
	if err := b.sum(ctx, sums); err != nil {
		return nil, err
	}
	p := b.comm.Size()
	path := b.comm.Datapath()
	r := &perfResult{
		Op: c.op, Algo: t.info.Algorithm, Requested: c.requested, Fabric: b.comm.Fabric(), Datapath: path.Name, Hook: path.Hook, Ranks: p, Bytes: c.n,
		Iters: c.rounds, Warmup: c.warmup, Timed: c.timed(), Time: perfTime(most[2:]), Wrong: sums[0],
		Chains: t.info.Chains, Subgroups: t.info.Subgroups, Chunk: t.info.Chunk, ChunksTotal: t.info.Chunks * uint64(p-1) * uint64(c.rounds),
		SentBytes: most[0], McastBytes: most[1], Dropped: sums[6], Duplicates: sums[7], Copied: sums[8], RepairedBytes: sums[9], Corrupt: sums[10],
		Secure: b.comm.Secure(), Integrity: b.comm.Integrity(),
		UserCPU: micros(float64(sums[1]) / iters / float64(p)), SysCPU: micros(float64(sums[2]) / iters / float64(p)),
	}
	bytes, factor := c.volume(p)
	if r.Time.Avg > 0 {
		r.AlgBW = bytes / (r.Time.Avg * 1e3)
		r.BusBW = r.AlgBW * factor
	}
	if works, why := b.comm.Multicast(); !works && p > 1 && c.picks() {
		r.FallbackReason = why
	} else if path.Reason != "" {
		r.FallbackReason = path.Reason
	}
	if c.overlap {
		o := overlapPercent(float64(sums[3]), float64(sums[4]), float64(sums[5]))
		r.Overlap = &o
	}
	return r, nil
}

// counted are this rank's times as far as they count: the largest of all ranks' is
// the iteration's, so 0 leaves a rank out.
func (b *perfBench) counted(c *perfCase, t *tally) []int64 {
	if c.timed() == "leaves" && b.comm.Rank() == c.root {
		return make([]int64, len(t.times))
	}
	return t.times
}

// perfTime sums up iterations, in ns.
func perfTime(ns []int64) perfTimes {
	slices.Sort(ns)
	at := func(q float64) float64 { return micros(float64(ns[max(0, int(math.Ceil(q*float64(len(ns))))-1)])) }
	return perfTimes{
		Avg: micros(float64(total(ns)) / float64(len(ns))), Min: at(0), P50: at(.5), P99: at(.99), Max: at(1),
	}
}

// micros are whole nanoseconds: more digits would be noise.
func micros(ns float64) float64 { return math.Round(ns) / 1e3 }

// sum adds up everybody's numbers, in place.
func (b *perfBench) sum(ctx context.Context, v []int64) error {
	return allcast.AllreduceSlice(ctx, b.comm, nil, v, allcast.Sum)
}

func (b *perfBench) max(ctx context.Context, v []int64) error {
	return allcast.AllreduceSlice(ctx, b.comm, nil, v, allcast.Max)
}
