package sim

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/units"
)

// The configuration that the flags give, with all of them and with none.
func TestConfig(t *testing.T) {
	defaults := sim.Config{
		Op: "broadcast", Algo: "mcast", Bytes: 65536, Timeout: 10 * time.Second, Seed: 1,
		Schedule: sim.Schedule{Subgroups: 1, ChainBy: "rank", Chunk: 4096, Radix: 4},
		Network:  sim.Network{Rate: 100e9, Latency: 500, Flow: "none"},
	}
	gather := defaults
	gather.Op = "allgather"
	reduce := defaults
	reduce.Op, reduce.Algo, reduce.Bytes = "reduce-scatter", "recursive-halving", 4096
	plain := sim.Config{
		Op: "scatter", Algo: "linear", Bytes: 7, Root: 2, Timeout: 10 * time.Second, Seed: 1,
		Schedule: sim.Schedule{Chunk: 4096, Segment: 1024},
		Network:  sim.Network{Rate: 100e9, Latency: 500},
		Faults:   sim.Faults{LossAll: 0.05},
	}
	vector := gather
	vector.Counts, vector.Bytes = []int64{1 << 20, 0, 7}, 1<<20
	all := sim.Config{
		Op: "broadcast", Algo: "mcast", Bytes: 8 << 20, Root: 2, InPlace: true,
		Schedule: sim.Schedule{
			Chains: 4, Subgroups: 3, ChainBy: "rack", Chunk: 1024, PSNBits: 20, Radix: 4,
		},
		Network:  sim.Network{Rate: 2.5e9, Latency: 2 * time.Microsecond, Queue: 65536, Flow: "credit"},
		Receiver: sim.Receiver{RecvQueue: 4 << 20, RecvCost: 100},
		Faults: sim.Faults{
			Loss: 0.01, LossAll: 0.001, Reorder: 0.05, Duplicate: 1,
			Stalls:  []units.Stall{{Rank: 1, At: time.Millisecond, For: 10 * time.Millisecond}, {Rank: 2, At: 0, For: 1}},
			Crashes: []sim.Crash{{Rank: 0, At: 100 * time.Microsecond}, {Rank: 1, At: time.Second}},
			Noise:   3 * time.Microsecond,
			Aggregators: []sim.AggregatorFault{
				{Node: 0, At: time.Millisecond, For: time.Second}, {Node: 0, At: 2 * time.Millisecond, Crash: true},
			},
		},
		Timeout: time.Second, Deadline: time.Minute, Seed: 18446744073709551615,
	}
	tree := defaults
	tree.Algo, tree.Radix, tree.Segment = "knomial", 8, 32<<10
	for _, c := range []struct {
		args string
		want sim.Config
	}{
		{"sim broadcast --topology star:3", defaults},
		{"sim broadcast --topology star:3 --algo knomial --radix 8 --segment 32K", tree},
		{"sim broadcast --topology star:3 --queue lossless --recv-queue unbounded", defaults},
		{"sim allgather --topology star:3", gather},
		{"sim reduce-scatter --topology star:3 --bytes 4K --algo recursive-halving", reduce},
		{"sim allgather --topology star:3 --counts 1M,0,7", vector},
		{"sim scatter --topology star:3 --algo linear --bytes 7 --root 2 --segment 1K --loss-all 5%", plain},
		{"sim broadcast --topology star:3 --algo mcast --bytes 8M --root 2 --inplace --chains 4 " +
			"--subgroups 3 --chain-by rack " +
			"--chunk 1K --psn-bits 20 --rate 2.5gbit --latency 2us " +
			"--queue 64K --recv-queue 4M --recv-cost 100ns --flow credit " +
			"--loss 1% --loss-all 0.1% --reorder 0.05 --duplicate 100% --stall 1@1ms+10ms --stall 2@0+1ns " +
			"--crash 0@100us --crash 1@1s --stall agg0@1ms+1s --crash agg0@2ms " +
			"--noise 3us --timeout 1s --deadline 1m --seed 18446744073709551615", all},
	} {
		o := execute(fine, strings.Fields(c.args)...)
		if o.Status != cli.StatusOK || len(o.configs) != 1 {
			t.Errorf("allcast %s: status %d, %d simulations\n%s", c.args, o.Status, len(o.configs), o.Stderr)
			continue
		}
		got := o.configs[0]
		if got.Topology == nil || got.Topology.Name != "star:3" {
			t.Errorf("allcast %s: on %+v", c.args, got.Topology)
		}
		got.Topology = nil
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("allcast %s:\n got %+v\nwant %+v", c.args, got, c.want)
		}
	}
}

func TestStatus(t *testing.T) {
	crashed := []sim.RankError{{
		Rank: 0, Culprit: 5, Op: "allgather", Phase: "multicast", Missing: "5:0-255",
		Reason: "silent for 10s",
	}}
	many := make([]sim.RankError, 100)
	for i := range many {
		many[i] = sim.RankError{Rank: i, Culprit: -1, Phase: "barrier", Reason: "deadline"}
	}
	for _, c := range []struct {
		name     string
		verified bool
		errors   []sim.RankError
		wrong    int
		rule     string
		status   int
		says     []string
	}{
		{"done", true, nil, 0, "", cli.StatusOK, nil},
		{"failed", false, crashed, 0, "", cli.StatusFailed, []string{
			"failed on 1 of 8 ranks",
			"rank 0 in multicast: silent for 10s; culprit rank 5; missing 5:0-255",
		}},
		{"failed, the survivors' data right", true, crashed, 0, "", cli.StatusFailed, []string{"culprit rank 5"}},
		{"failed everywhere", false, many, 0, "", cli.StatusFailed, []string{"rank 7 in barrier: deadline\n", "and 92 more"}},
		{"wrong", false, nil, 2, "", cli.StatusWrong, []string{"wrong data on 2 of 8 ranks"}},
		{"not verified, no reason given", false, nil, 0, "", cli.StatusWrong, []string{"wrong data"}},
		{"failed here, wrong there", false, crashed, 1, "", cli.StatusWrong, []string{
			"culprit rank 5",
			"wrong data on 1 of 8 ranks",
		}},
		{
			"against the rules", false, nil, 0, "a free buffer was written", cli.StatusWrong,
			[]string{"a free buffer was written"},
		},
	} {
		for _, mode := range []string{"", " --json"} {
			o := execute(func(cfg sim.Config) (*sim.Result, error) {
				r, err := fine(cfg)
				r.Verified, r.Errors, r.Wrong, r.Violation = c.verified, c.errors, c.wrong, c.rule
				return r, err
			}, strings.Fields("sim allgather --topology star:8"+mode)...)
			if o.Status != c.status {
				t.Errorf("%s%s: status %d, want %d", c.name, mode, o.Status, c.status)
			}
			for _, s := range c.says {
				if !strings.Contains(o.Stderr, s) {
					t.Errorf("%s%s: stderr does not say %q:\n%s", c.name, mode, s, o.Stderr)
				}
			}
			if len(c.says) == 0 && o.Stderr != "" {
				t.Errorf("%s%s: stderr has %q", c.name, mode, o.Stderr)
			}
		}
	}
}

// A bad configuration that only the simulator detects is a usage error. Any other error of the simulator is a failure.
func TestRefusal(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
	}{
		{fmt.Errorf("%w: at most 1024", sim.ErrConfig), cli.StatusUsage},
		{errors.New("at most 1024"), cli.StatusFailed},
	} {
		o := execute(func(sim.Config) (*sim.Result, error) { return nil, c.err },
			strings.Fields("sim broadcast --topology star:8 --subgroups 5000 --json")...)
		if o.Status != c.status || o.Stdout != "" || !strings.Contains(o.Stderr, "at most 1024") {
			t.Errorf("%v: status %d, stdout %q, stderr %q", c.err, o.Status, o.Stdout, o.Stderr)
		}
	}
}

func TestJSON(t *testing.T) {
	o := execute(fine, strings.Fields("sim allgather --topology star:8 --bytes 1M --json")...)
	lines := o.Objects(t)
	if len(lines) != 1 {
		t.Fatalf("%d lines, want 1", len(lines))
	}
	got := lines[0]
	for _, field := range strings.Fields(`op algo nodes topology bytes seed chains subgroups chunk time_us bound_us
		link_bytes link_bytes_bound payload_link_bytes max_crossings sent_bytes repaired_chunks fetches_served_by_root
		verified events wall_ms phases errors`) {
		if _, ok := got[field]; !ok {
			t.Errorf("no field %q", field)
		}
	}
	if list, ok := got["errors"].([]any); !ok || len(list) != 0 {
		t.Errorf("errors is %v, want []", got["errors"])
	}
	phases, _ := got["phases"].(map[string]any)
	for _, field := range strings.Fields("barrier_us multicast_us fetch_us handshake_us") {
		if _, ok := phases[field]; !ok {
			t.Errorf("no field phases.%s", field)
		}
	}
}

func TestSeveralAlgorithms(t *testing.T) {
	n := 0
	o := execute(func(cfg sim.Config) (*sim.Result, error) {
		r, err := fine(cfg)
		n++
		r.Verified = n != 1 // the first is wrong, the second fails: the worst wins
		if n == 2 {
			r.Errors = []sim.RankError{{Reason: "lost"}}
		}
		return r, err
	}, strings.Fields("sim allgather --topology star:8 --algo mcast,mcast --json")...)
	if o.Status != cli.StatusWrong || len(o.Objects(t)) != 2 {
		t.Errorf("status %d and %d lines, want %d and 2", o.Status, len(o.Objects(t)), cli.StatusWrong)
	}
}

func TestTable(t *testing.T) {
	o := execute(fine, strings.Fields("sim allgather --topology star:8 --bytes 1M --algo mcast,mcast")...)
	for _, want := range []string{
		"allgather on star:8 (8 ranks), simulated, seed 1, flow control none",
		"bytes is N of the paper: what one rank sends",
		"algo                    mcast    mcast",
		"bytes                   1048576  1048576  what one rank sends",
		"verified                yes      yes",
	} {
		if !strings.Contains(o.Stdout, want) {
			t.Errorf("the table does not say %q:\n%s", want, o.Stdout)
		}
	}
}
