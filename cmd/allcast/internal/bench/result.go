package bench

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/allcast/allcast"
)

// Result is one line of output.
type Result struct {
	Subject
	Outcome
	InPlace   *Outcome `json:"in_place"` // second measurement, in place; null without --both
	Chains    int      `json:"chains"`
	Subgroups int      `json:"subgroups"`
	Chunk     int      `json:"chunk"`
	Traffic
	UserCPU        float64  `json:"user_cpu_us"`
	SysCPU         float64  `json:"sys_cpu_us"`
	IdleCPU        *float64 `json:"idle_cpu_pct"` // of the machines of all ranks; null if not known
	Overlap        *float64 `json:"overlap_pct"`  // null if not measured
	Secure         bool     `json:"secure"`
	Integrity      bool     `json:"integrity"`
	FallbackReason string   `json:"fallback_reason"`
	Schema         int      `json:"schema"` // version of the format

	// The bandwidths under their old names, for one release.
	OldAlgBW float64 `json:"algbw_gbps"`
	OldBusBW float64 `json:"busbw_gbps"`
}

// schema is the version of the format of a Result.
const schema = 1

// Outcome is what a measurement found.
type Outcome struct {
	Time  Times   `json:"time_us"`
	AlgBW float64 `json:"algbw_GBps"` // from the median time
	BusBW float64 `json:"busbw_GBps"`
	Wrong int64   `json:"wrong"`
}

// Subject says what was measured: an operation, an algorithm and a size.
type Subject struct {
	Op        string `json:"op"`
	Algo      string `json:"algo"`
	Requested string `json:"requested"` // algorithm as given: auto, or the same
	Fabric    string `json:"fabric"`
	Datapath  string `json:"datapath"`
	Hook      string `json:"hook"`
	Ranks     int    `json:"ranks"`
	Subsets   int    `json:"subsets"` // number of disjoint sets of ranks that ran the operation at once
	Bytes     int64  `json:"bytes"`
	Buffers   int    `json:"buffers"`
	Iters     int    `json:"iters"`
	Warmup    int    `json:"warmup"`
	Timed     string `json:"timed"` // ranks whose times count: all or leaves
}

// Traffic counts chunks over all ranks and iterations, and bytes.
type Traffic struct {
	ChunksTotal   uint64 `json:"chunks_total"` // datagrams that multicast had to deliver
	Dropped       int64  `json:"dropped_chunks"`
	Duplicates    int64  `json:"duplicate_chunks"`
	Copied        int64  `json:"copied_chunks"`
	Corrupt       int64  `json:"corrupt_chunks"`
	SentBytes     int64  `json:"sent_bytes"`  // per operation, of the busiest rank
	McastBytes    int64  `json:"mcast_bytes"` // per operation, of the busiest rank
	RepairedBytes int64  `json:"repaired_bytes"`
	IncSums       int64  `json:"inc_sums"`          // chunks that aggregators summed
	IncFetched    int64  `json:"inc_fetched_bytes"` // inputs of sums that ranks made themselves
}

// Times summarizes the iterations, in us.
type Times struct {
	Avg float64 `json:"avg"`
	Min float64 `json:"min"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// gather combines the tallies of all ranks into one result, which all ranks get.
func (b *Bench) gather(ctx context.Context, c *trial, t *tally) (*Result, error) {
	iters := float64(c.rounds)
	delta := func(f func(allcast.Stats) uint64) int64 { return int64(f(t.after) - f(t.before)) }
	sent := float64(delta(func(s allcast.Stats) uint64 { return s.SentBytes }))/iters - b.barrier
	if c.Check {
		sent -= b.barrier // once verifies after a second barrier
	}
	mcast := float64(delta(func(s allcast.Stats) uint64 { return s.McastBytes })) / iters
	times := t.times
	if c.Timed() == "leaves" && b.first.Rank() == c.Root {
		times = make([]int64, len(times)) // the largest time counts, so zeros leave the root out
	}
	largest := append([]int64{int64(math.Round(max(0, sent))), int64(math.Round(mcast)), c.volume()}, times...)
	sums := []int64{
		t.wrong, t.user, t.sys, total(t.times), t.compute, t.both,
		delta(func(s allcast.Stats) uint64 { return s.DroppedChunks }),
		delta(func(s allcast.Stats) uint64 { return s.DuplicateChunks }),
		delta(func(s allcast.Stats) uint64 { return s.CopiedChunks }),
		delta(func(s allcast.Stats) uint64 { return s.RepairedBytes }),
		delta(func(s allcast.Stats) uint64 { return s.CorruptChunks }),
		delta(func(s allcast.Stats) uint64 { return s.IncSums }),
		delta(func(s allcast.Stats) uint64 { return s.IncFetchedBytes }),
		int64(math.Round(1e3 * max(0, t.idle))),
		count(t.idle < 0),
	}
	if err := allcast.AllreduceSlice(ctx, b.Comm, nil, largest, allcast.Max); err != nil {
		return nil, err
	}
	if err := allcast.AllreduceSlice(ctx, b.Comm, nil, sums, allcast.Sum); err != nil {
		return nil, err
	}
	p, members := b.Comm.Size(), b.Comm.Size()/c.subsets()
	path := b.Comm.Datapath()
	r := &Result{
		Subject: Subject{
			Op: c.Op, Algo: t.info.Algorithm, Requested: c.requested,
			Fabric: b.Comm.Fabric(), Datapath: path.Name, Hook: path.Hook,
			Ranks: p, Subsets: c.subsets(), Bytes: c.n, Buffers: max(1, c.Buffers),
			Iters: c.rounds, Warmup: c.Warmup, Timed: c.Timed(),
		},
		Outcome: Outcome{Time: summarize(largest[3:]), Wrong: sums[0]}, Schema: schema,
		Chains: t.info.Chains, Subgroups: t.info.Subgroups, Chunk: t.info.Chunk,
		Traffic: Traffic{
			ChunksTotal: t.info.Chunks * uint64(members-1) * uint64(c.subsets()*c.rounds),
			Dropped:     sums[6], Duplicates: sums[7], Copied: sums[8], Corrupt: sums[10],
			SentBytes: largest[0], McastBytes: largest[1], RepairedBytes: sums[9],
			IncSums: sums[11], IncFetched: sums[12],
		},
		Secure: b.Comm.Secure(), Integrity: b.Comm.Integrity(),
		UserCPU: micros(float64(sums[1]) / iters / float64(p)), SysCPU: micros(float64(sums[2]) / iters / float64(p)),
	}
	if sums[14] == 0 {
		idle := math.Round(float64(sums[13])/float64(p)/100) / 10
		r.IdleCPU = &idle
	}
	if r.Time.P50 > 0 {
		r.AlgBW = float64(largest[2]) / (r.Time.P50 * 1e3)
		r.BusBW = r.AlgBW
		if bus := c.operation().bus; bus != nil {
			r.BusBW *= bus(float64(members))
		}
		r.OldAlgBW, r.OldBusBW = r.AlgBW, r.BusBW
	}
	if works, why := b.Comm.Multicast(); t.info.Fallback != "" {
		r.FallbackReason = t.info.Fallback
	} else if !works && members > 1 && c.auto() {
		r.FallbackReason = why
	} else if path.Reason != "" {
		r.FallbackReason = path.Reason
	}
	if c.Overlap {
		o := overlapPercent(float64(sums[3]), float64(sums[4]), float64(sums[5]))
		r.Overlap = &o
	}
	return r, nil
}

func count(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// summarize sorts and summarizes the times of iterations, in ns.
func summarize(ns []int64) Times {
	slices.Sort(ns)
	at := func(q float64) float64 { return micros(float64(ns[max(0, int(math.Ceil(q*float64(len(ns))))-1)])) }
	return Times{
		Avg: micros(float64(total(ns)) / float64(len(ns))), Min: at(0), P50: at(.5), P99: at(.99), Max: at(1),
	}
}

// micros converts ns to us. It rounds to whole nanoseconds, because more digits would be noise.
func micros(ns float64) float64 { return math.Round(ns) / 1e3 }

// RawHeader is the first line of a log of raw times. record writes the others.
const RawHeader = "rank,op,algo,bytes,iteration,start_ns,duration_ns\n"

// record collects the iterations of all ranks. Rank 0 writes them to its log.
func (b *Bench) record(ctx context.Context, r *Result, t *tally) error {
	mine := slices.Concat(t.starts, t.times)
	all := make([]int64, len(mine)*b.Comm.Size())
	if err := allcast.AllgatherSlice(ctx, b.Comm, mine, all); err != nil || b.Raw == nil {
		return err
	}
	n := len(t.times)
	for rank := range b.Comm.Size() {
		starts, times := all[2*n*rank:][:n], all[2*n*rank+n:][:n]
		for i := range n {
			_, err := fmt.Fprintf(b.Raw, "%d,%s,%s,%d,%d,%d,%d\n", rank, r.Op, r.Algo, r.Bytes, i, starts[i], times[i])
			if err != nil {
				return err
			}
		}
	}
	return nil
}
