package bench

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
)

// joined runs ranks in goroutines.
func joined(t *testing.T, ranks int, do func(*allcast.Comm) error) []error {
	t.Helper()
	return clitest.Join(t, ranks, allcast.Options{}, do)
}

func testJob(op string) *Job {
	return &Job{
		Op: op, Iters: 2, Warmup: 1, Check: true, Chains: 1, Subgroups: 1, DType: allcast.Uint8, Reduce: allcast.Sum,
	}
}

// The volume and the factor are those of nccl-tests.
func TestVolume(t *testing.T) {
	const ranks, n = 4, 1000
	for op, want := range map[string][2]float64{
		"broadcast": {n, 1}, "allgather": {ranks * n, .75}, "gather": {ranks * n, .75}, "scatter": {ranks * n, .75},
		"reduce": {n, 1}, "reduce-scatter": {ranks * n, .75}, "allreduce": {n, 1.5}, "alltoall": {ranks * n, .75},
		"allgatherv": {2500, .75}, "sendrecv": {n, 1}, "broadcast-coalesced": {3 * n, 1}, "barrier": {0, 1},
		"allgather-coalesced": {3 * ranks * n, .75}, Pair: {2 * ranks * n, .75},
	} {
		o, job, volume := Find(op), testJob(op), int64(0)
		job.Buffers = 3
		for rank := range ranks {
			c := &trial{Job: job}
			for _, half := range o.halves() {
				c.parts = append(c.parts, &call{layout: half.plan(job.shape(half, rank, ranks, n))})
			}
			volume = max(volume, c.volume())
		}
		factor := 1.
		if o.bus != nil {
			factor = o.bus(ranks)
		}
		if float64(volume) != want[0] || factor != want[1] {
			t.Errorf("%s: %d bytes times %g, want %g times %g", op, volume, factor, want[0], want[1])
		}
	}
}

// Names of nccl-tests and of OSU's benchmarks find the operation, and no name finds two.
func TestFind(t *testing.T) {
	for name, want := range map[string]string{
		"all_gather": "allgather", "all_gather_perf": "allgather", "all_reduce_perf": "allreduce",
		"reduce_scatter_perf": "reduce-scatter", "alltoall_perf": "alltoall", "broadcast_perf": "broadcast",
		"sendrecv_perf": "sendrecv", "osu_bcast": "broadcast", "osu_latency": "pingpong", "osu_bw": "stream",
	} {
		if o := Find(name); o == nil || o.Name != want {
			t.Errorf("%s is %v, want %s", name, o, want)
		}
	}
	seen := map[string]bool{}
	for _, o := range Operations {
		for _, name := range append(o.Aliases, o.Name) {
			if seen[name] {
				t.Errorf("%s is the name of two operations", name)
			}
			seen[name] = true
		}
	}
	if Find("frobnicate") != nil || Find("reduce-scatter+allgather") != nil {
		t.Error("unknown operations are found")
	}
}

// A wrong byte of every block is found, also in either half of a pair.
func TestFindsWrong(t *testing.T) {
	for _, op := range Operations {
		job := testJob(op.Name)
		job.Buffers = 2
		errs := joined(t, 2, func(comm *allcast.Comm) error {
			b, err := New(t.Context(), comm)
			if err != nil {
				return err
			}
			c, err := b.newTrial(t.Context(), job, "auto", 100)
			if err != nil {
				return err
			}
			if err := b.once(t.Context(), c, &tally{}, nil); err != nil {
				return err
			}
			for _, p := range c.parts {
				at := int64(0)
				for _, block := range p.out {
					p.output[at+7] ^= 1
					if wrong := c.wrong(1); wrong != 1 {
						t.Errorf("%s: %d bytes of block %v wrong, want 1", op.Name, wrong, block)
					}
					p.output[at+7] ^= 1
					at += block.n
				}
			}
			if len(c.parts) == 2 && c.parts[0].comm == c.parts[1].comm {
				t.Error("both halves on one communicator")
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFields(t *testing.T) {
	b, err := json.Marshal(Result{})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for _, f := range strings.Fields(`op algo fabric datapath hook ranks bytes iters time_us algbw_GBps busbw_GBps
		algbw_gbps busbw_gbps wrong in_place schema subsets buffers
		chains subgroups chunk
		chunks_total dropped_chunks duplicate_chunks copied_chunks sent_bytes mcast_bytes repaired_bytes
		user_cpu_us sys_cpu_us idle_cpu_pct inc_sums inc_fetched_bytes overlap_pct fallback_reason`) {
		if _, ok := got[f]; !ok {
			t.Errorf("no field %q", f)
		}
	}
	times, _ := got["time_us"].(map[string]any)
	for _, f := range strings.Fields("avg min p50 p99 max") {
		if _, ok := times[f]; !ok {
			t.Errorf("no field time_us.%s", f)
		}
	}
}

func TestSummarize(t *testing.T) {
	ns := make([]int64, 100)
	for i := range ns {
		ns[i] = int64(100-i) * 1000
	}
	if got, want := summarize(ns), (Times{50.5, 1, 50, 99, 100}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := summarize([]int64{1500}), (Times{1.5, 1.5, 1.5, 1.5, 1.5}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
