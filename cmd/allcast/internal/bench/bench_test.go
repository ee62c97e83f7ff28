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

func TestPairVolume(t *testing.T) {
	c := &trial{Job: &Job{Op: Pair}, n: 1000}
	if bytes, factor := c.volume(4); bytes != 8000 || factor != .75 {
		t.Errorf("%g bytes times %g, want the volume of two rings: 8000 times 0.75", bytes, factor)
	}
}

// A wrong byte in either half is found.
func TestPairFindsWrong(t *testing.T) {
	job := testJob(Pair)
	errs := joined(t, 2, func(comm *allcast.Comm) error {
		b, err := New(t.Context(), comm)
		if err != nil {
			return err
		}
		c, err := b.newTrial(t.Context(), job, "ring+ring", 100)
		if err != nil {
			return err
		}
		if err := b.once(t.Context(), c, &tally{}, nil); err != nil {
			return err
		}
		for i, p := range c.parts {
			p.recv[7] ^= 1
			if wrong := c.wrong(1); wrong != 1 {
				t.Errorf("%d bytes of half %d wrong, want 1", wrong, i)
			}
			p.recv[7] ^= 1
		}
		if c.parts[0].comm == c.parts[1].comm {
			t.Error("both halves on one communicator")
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
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
	for _, f := range strings.Fields(`op algo fabric datapath hook ranks bytes iters time_us algbw_gbps busbw_gbps wrong
		chains subgroups chunk
		chunks_total dropped_chunks duplicate_chunks copied_chunks sent_bytes mcast_bytes repaired_bytes
		user_cpu_us sys_cpu_us overlap_pct fallback_reason`) {
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
