package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/units"
)

// perfWorld runs a job and returns the errors by rank and what rank 0 printed.
func perfWorld(t *testing.T, ranks int, o allcast.Options, job *perfJob) ([]error, outcome) {
	t.Helper()
	o.Subgroups, o.Chunk = job.subgroups, job.chunk
	var out bytes.Buffer
	errs := joined(t, ranks, o, func(comm *allcast.Comm) error {
		a := &app{stdout: io.Discard, stderr: io.Discard, json: true}
		if comm.Rank() == 0 {
			a.stdout = &out
		}
		wrong, err := a.perfOn(context.WithoutCancel(t.Context()), comm, job, nil)
		if err == nil {
			err = a.perfVerdict(comm.Rank(), wrong)
		}
		return err
	})
	return errs, outcome{stdout: out.String()}
}

// inWorld does something on all ranks.
func inWorld(t *testing.T, ranks int, do func(*allcast.Comm) error) []error {
	t.Helper()
	return joined(t, ranks, allcast.Options{}, do)
}

// joined runs ranks in goroutines, which starts faster than processes, and returns
// their errors.
func joined(t *testing.T, ranks int, o allcast.Options, do func(*allcast.Comm) error) []error {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.Size, o.Addr = ranks, l.Addr().String()
	_ = l.Close()
	var (
		wg   sync.WaitGroup
		errs = make([]error, ranks)
	)
	for r := range ranks {
		wg.Go(func() {
			o := o
			o.Rank = r
			comm, err := allcast.Join(t.Context(), o)
			if err != nil {
				errs[r] = err
				return
			}
			errs[r] = errors.Join(do(comm), comm.Close())
		})
	}
	wg.Wait()
	return errs
}

// testJob is a short one with all algorithms.
func testJob(op string) *perfJob {
	return &perfJob{
		op: op, algos: append(perfAlgorithms(op), "auto"), sizes: []int64{0, 1, 4095, 4096, 4097},
		iters: 2, warmup: 1, check: true, chains: 1, subgroups: 1, dtype: allcast.Uint8, reduce: allcast.Sum,
	}
}

// Every operation and algorithm, at sizes around those of chunks and elements,
// leaves the right data.
func TestPerfVerifies(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 5} {
		for _, op := range perfOperations {
			t.Run(fmt.Sprintf("%s/%d", op, ranks), func(t *testing.T) {
				job := testJob(op)
				job.inplace = ranks%2 == 0
				job.root = ranks - 1
				errs, o := perfWorld(t, ranks, allcast.Options{}, job)
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
				lines := o.objects(t)
				if want := len(job.algos) * len(job.sizes); len(lines) != want {
					t.Fatalf("%d lines, want %d", len(lines), want)
				}
				for i, l := range lines {
					n, algo := job.sizes[i/len(job.algos)], job.algos[i%len(job.algos)]
					if l["wrong"] != 0. || l["bytes"] != float64(n) || l["ranks"] != float64(ranks) || l["requested"] != algo || l["fallback_reason"] != "" {
						t.Errorf("%s of %d: %v", algo, n, l)
					}
					if ran := l["algo"]; algo != "auto" && ran != algo || ran == "auto" {
						t.Errorf("%v ran instead of %s", ran, algo)
					}
				}
			})
		}
	}
}

// Chains and subgroups beyond what the operation can use are clamped, and both ways of
// placing buffers work with any.
func TestPerfShapes(t *testing.T) {
	for _, inplace := range []bool{false, true} {
		job := testJob("allgather")
		job.algos, job.sizes, job.chains, job.subgroups, job.chunk, job.inplace = []string{"mcast"}, []int64{5000}, 9, 3, 1000, inplace
		errs, o := perfWorld(t, 3, allcast.Options{}, job)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		l := o.objects(t)[0]
		// 5 chunks of each of 3 ranks, to 2 others, in 2 iterations.
		if l["chains"] != 3. || l["subgroups"] != 3. || l["chunk"] != 1000. || l["chunks_total"] != 60. || l["wrong"] != 0. {
			t.Errorf("%v", l)
		}
		// Each rank multicasts its block once, with a header a chunk.
		if l["mcast_bytes"] != 5000.+5*16 || l["sent_bytes"].(float64) < 5080 || l["sent_bytes"].(float64) > 7000 {
			t.Errorf("%v bytes by multicast, %v in all", l["mcast_bytes"], l["sent_bytes"])
		}
	}
}

func TestPerfReductions(t *testing.T) {
	for _, c := range []struct {
		dtype allcast.DataType
		op    allcast.ReduceOp
	}{{allcast.Float32, allcast.Sum}, {allcast.BFloat16, allcast.Average}, {allcast.Float16, allcast.Product}, {allcast.Int64, allcast.Min}} {
		for _, op := range []string{"reduce-scatter", "allreduce"} {
			job := testJob(op)
			job.dtype, job.reduce = c.dtype, c.op
			job.round()
			errs, o := perfWorld(t, 3, allcast.Options{}, job)
			if err := errors.Join(errs...); err != nil {
				t.Errorf("%s %v %v: %v\n%s", op, c.dtype, c.op, err, o.stdout)
			}
			for _, l := range o.objects(t) {
				if int(l["bytes"].(float64))%c.dtype.Size() != 0 {
					t.Errorf("%v bytes are no whole elements", l["bytes"])
				}
			}
		}
	}
}

// Without multicast, auto says why it does without, and mcast what to do.
func TestPerfWithoutMulticast(t *testing.T) {
	job := testJob("broadcast")
	job.algos, job.sizes = []string{"auto"}, []int64{1 << 16}
	errs, o := perfWorld(t, 2, allcast.Options{NoMulticast: true}, job)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if l := o.objects(t)[0]; l["algo"] == "mcast" || l["fallback_reason"] == "" || l["wrong"] != 0. {
		t.Errorf("%v", l)
	}
	job.algos = []string{"mcast"}
	errs, _ = perfWorld(t, 2, allcast.Options{NoMulticast: true}, job)
	for r, err := range errs {
		if !errors.Is(err, allcast.ErrNoMulticast) || !strings.Contains(err.Error(), "doctor") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

func TestPerfFields(t *testing.T) {
	b, err := json.Marshal(perfResult{})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for _, f := range fields(`op algo fabric datapath hook ranks bytes iters time_us algbw_gbps busbw_gbps wrong chains subgroups chunk
		chunks_total dropped_chunks duplicate_chunks copied_chunks sent_bytes mcast_bytes repaired_bytes user_cpu_us sys_cpu_us overlap_pct fallback_reason`) {
		if _, ok := got[f]; !ok {
			t.Errorf("no field %q", f)
		}
	}
	times, _ := got["time_us"].(map[string]any)
	for _, f := range fields("avg min p50 p99 max") {
		if _, ok := times[f]; !ok {
			t.Errorf("no field time_us.%s", f)
		}
	}
}

func TestPerfVerdict(t *testing.T) {
	a := &app{stderr: io.Discard}
	if err := a.perfVerdict(0, 0); err != nil {
		t.Error(err)
	}
	for rank := range 2 {
		if got := a.fail(a.perfVerdict(rank, 7)); got != statusWrong {
			t.Errorf("rank %d: status %d for wrong data", rank, got)
		}
	}
}

func TestPerfTimes(t *testing.T) {
	ns := make([]int64, 100)
	for i := range ns {
		ns[i] = int64(100-i) * 1000
	}
	if got, want := perfTime(ns), (perfTimes{50.5, 1, 50, 99, 100}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := perfTime([]int64{1500}), (perfTimes{1.5, 1.5, 1.5, 1.5, 1.5}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestPerfSizes(t *testing.T) {
	for _, c := range []struct {
		from, to string
		factor   int
		want     string
	}{
		{"", "", 4, "[4096 16384 65536 262144 1048576]"},
		{"5000", "", 2, "[5000]"},
		{"", "1K", 2, "[1024]"},
		{"", "10K", 2, "[4096 8192]"},
		{"0", "10", 3, "[0 1 3 9]"},
		{"0", "0", 3, "[0]"},
		{"1", "5", 2, "[1 2 4]"},
		{"8589934592G", "8589934592G", 2, "error"},
		{"8589934591G", "8589934591G", 2, "[9223372035781033984]"},
	} {
		cmd := perfCmd{Operation: "allgather", Factor: c.factor}
		var err error
		for _, f := range []struct {
			text string
			flag **units.Size
		}{{c.from, &cmd.Min}, {c.to, &cmd.Max}} {
			if f.text != "" {
				var n units.Size
				if n, err = units.ParseSize(f.text); err == nil {
					*f.flag = &n
				}
			}
		}
		got := "error"
		if err == nil {
			list, _ := cmd.sizes()
			got = fmt.Sprint(list)
		}
		if got != c.want {
			t.Errorf("-b %s -e %s -f %d: %s, want %s", c.from, c.to, c.factor, got, c.want)
		}
	}
}
