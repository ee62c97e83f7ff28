package perf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/cmd/allcast/internal/bench"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/units"
)

// inWorld runs jobs and returns the errors by rank and the output of rank 0.
func inWorld(t *testing.T, ranks int, o allcast.Options, jobs ...*job) ([]error, clitest.Outcome) {
	t.Helper()
	o.Subgroups, o.Chunk = jobs[0].Subgroups, jobs[0].Chunk
	var out bytes.Buffer
	errs := clitest.Join(t, ranks, o, func(comm *allcast.Comm) error {
		e := &cli.Env{Stdout: io.Discard, Stderr: io.Discard, JSON: true}
		if comm.Rank() == 0 {
			e.Stdout = &out
		}
		ctx := context.WithoutCancel(t.Context())
		b, err := bench.New(ctx, comm)
		if err != nil {
			return err
		}
		for _, job := range jobs {
			wrong, err := measure(ctx, e, b, job)
			if err == nil {
				err = verdict(e, comm.Rank(), wrong)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return errs, clitest.Outcome{Stdout: out.String()}
}

// algorithms lists the algorithms of an operation that need no aggregators, except auto. TestInc covers the others.
func algorithms(op string) []string {
	lists := bench.Find(op).Algorithms()
	for i := range lists {
		lists[i] = slices.DeleteFunc(lists[i], func(algo string) bool { return algo == "inc" })
	}
	if len(lists) == 1 {
		return lists[0]
	}
	var list []string
	for _, a := range lists[0] {
		for _, b := range lists[1] {
			list = append(list, a+"+"+b)
		}
	}
	return list
}

// testJob is a short job with all algorithms.
func testJob(op string) *job {
	return &job{
		Job: bench.Job{
			Op: op, Iters: 2, Warmup: 1, Check: true, Chains: 1, Subgroups: 1, DType: allcast.Uint8, Reduce: allcast.Sum,
		},
		algos: append(algorithms(op), "auto"), sizes: []int64{0, 1, 4095, 4096, 4097},
	}
}

// Every operation and algorithm gives the right data, at sizes around those of chunks and elements.
func TestVerifies(t *testing.T) {
	for _, c := range []struct{ ranks, subsets int }{{1, 1}, {2, 1}, {3, 1}, {5, 1}, {4, 2}} {
		ranks, members := c.ranks, c.ranks/c.subsets
		for _, op := range bench.Operations {
			if op.Ranks > 0 && op.Ranks != members {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d/%d", op.Name, ranks, c.subsets), func(t *testing.T) {
				job := testJob(op.Name)
				job.Buffers, job.Subsets, job.Iters = 3, c.subsets, 1
				if c.subsets > 1 {
					job.sizes = []int64{4097}
				}
				job.InPlace = ranks%2 == 0
				job.Root = members - 1
				errs, o := inWorld(t, ranks, allcast.Options{}, job)
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
				lines := o.Objects(t)
				if want := len(job.algos) * len(job.sizes); len(lines) != want {
					t.Fatalf("%d lines, want %d", len(lines), want)
				}
				for i, l := range lines {
					n, algo := job.sizes[i/len(job.algos)], job.algos[i%len(job.algos)]
					if l["wrong"] != 0. || l["bytes"] != float64(n) || l["ranks"] != float64(ranks) || l["requested"] != algo ||
						l["fallback_reason"] != "" {
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

// Blocks may be empty, also the last ones.
func TestEmptyBlocks(t *testing.T) {
	for _, op := range []string{"allgatherv", "gatherv", "scatterv", "reduce-scatterv", "alltoallv"} {
		job := testJob(op)
		job.sizes = []int64{1, 3}
		errs, o := inWorld(t, 8, allcast.Options{}, job)
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%s: %v\n%s", op, err, o.Stdout)
		}
	}
}

// Values of chains and subgroups above what the operation can use are clamped, in place and out of place.
func TestShapes(t *testing.T) {
	for _, inplace := range []bool{false, true} {
		job := testJob("allgather")
		job.algos, job.sizes, job.Chains, job.Subgroups, job.Chunk, job.InPlace = []string{"mcast"}, []int64{50_000}, 9, 3,
			1000, inplace
		errs, o := inWorld(t, 3, allcast.Options{}, job)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		l := o.Objects(t)[0]
		// 50 chunks of each of 3 ranks, to 2 others, in 2 iterations.
		if l["chains"] != 3. || l["subgroups"] != 3. || l["chunk"] != 1000. || l["chunks_total"] != 600. || l["wrong"] != 0. {
			t.Errorf("%v", l)
		}
		// Each rank multicasts its block once, with one header per chunk.
		if l["mcast_bytes"] != 50_000.+50*16 || l["sent_bytes"].(float64) < 50_800 || l["sent_bytes"].(float64) > 53_000 {
			t.Errorf("%v bytes by multicast, %v in all", l["mcast_bytes"], l["sent_bytes"])
		}
	}
}

// Every reduction has every type and operator that its elements allow.
func TestReductions(t *testing.T) {
	var jobs []*job
	for dtype := allcast.Float32; dtype <= allcast.Bool; dtype++ {
		for op := allcast.Sum; op <= allcast.PremultipliedSum; op++ {
			if reduce.Into(nil, nil, reduce.Type(dtype), reduce.Op(op)) != nil {
				continue // the type does not have this operator
			}
			for _, name := range []string{"reduce", "reduce-scatter", "reduce-scatterv", "allreduce"} {
				job := testJob(name)
				job.DType, job.Reduce, job.Iters, job.Warmup, job.both = dtype, op, 1, 0, true
				job.sizes = []int64{4101}
				if dtype > allcast.BFloat16 && dtype != allcast.Int64 {
					job.algos = job.algos[:1] // all algorithms run with some types
				}
				job.round()
				jobs = append(jobs, job)
			}
		}
	}
	errs, o := inWorld(t, 3, allcast.Options{}, jobs...)
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("%v\n%s", err, o.Stdout)
	}
	lines := o.Objects(t)
	for _, job := range jobs {
		for _, n := range job.sizes {
			for _, algo := range job.algos {
				l := lines[0]
				lines = lines[1:]
				if l["op"] != job.Op || l["bytes"] != float64(n) || n%int64(job.DType.Size()) != 0 || l["wrong"] != 0. ||
					l["in_place"].(map[string]any)["wrong"] != 0. {
					t.Errorf("%v of %v by %s: %v", job.Reduce, job.DType, algo, l)
				}
			}
		}
	}
}

// Without multicast, auto reports why it fell back, and mcast says what to do.
func TestWithoutMulticast(t *testing.T) {
	job := testJob("broadcast")
	job.algos, job.sizes = []string{"auto"}, []int64{1 << 16}
	errs, o := inWorld(t, 2, allcast.Options{NoMulticast: true}, job)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if l := o.Objects(t)[0]; l["algo"] == "mcast" || l["fallback_reason"] == "" || l["wrong"] != 0. {
		t.Errorf("%v", l)
	}
	job.algos = []string{"mcast"}
	errs, _ = inWorld(t, 2, allcast.Options{NoMulticast: true}, job)
	for r, err := range errs {
		if !errors.Is(err, allcast.ErrNoMulticast) || !strings.Contains(err.Error(), "doctor") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

func TestVerdict(t *testing.T) {
	e := &cli.Env{Stderr: io.Discard}
	if err := verdict(e, 0, 0); err != nil {
		t.Error(err)
	}
	for rank := range 2 {
		if got := verdict(e, rank, 7); got != cli.StatusError(cli.StatusWrong) {
			t.Errorf("rank %d: %v for wrong data", rank, got)
		}
	}
}

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		from, to string
		factor   int
		want     string
	}{
		{"", "", 4, "[4096 16384 65536 262144 1048576]"},
		{"5000", "", 2, "error"}, // only -e makes -f mean something
		{"5000", "5000", 2, "[5000]"},
		{"", "1K", 2, "[1024]"},
		{"", "10K", 2, "[4096 8192]"},
		{"0", "10", 3, "[0 1 3 9]"},
		{"0", "0", 3, "[0]"},
		{"1", "5", 2, "[1 2 4]"},
		{"8589934592G", "8589934592G", 2, "error"},
		{"8589934591G", "8589934591G", 2, "[9223372035781033984]"},
	} {
		cmd := sizeFlags{Factor: &c.factor}
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
		var list []int64
		if err == nil {
			list, err = cmd.sizes()
		}
		got := fmt.Sprint(list)
		if err != nil {
			got = "error"
		}
		if got != c.want {
			t.Errorf("-b %s -e %s -f %d: %s, want %s", c.from, c.to, c.factor, got, c.want)
		}
	}
}
