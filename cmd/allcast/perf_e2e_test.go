package main

import (
	"os"
	"strings"
	"testing"
)

// jsonOf runs the command as a process and returns its lines.
func jsonOf(t *testing.T, args string, env ...string) []map[string]any {
	t.Helper()
	cmd := process(t, fields(args)...)
	cmd.Env = append(cmd.Env, env...)
	o := finish(t, cmd)
	if o.status != statusOK {
		t.Fatalf("allcast %s: status %d\n%s%s", args, o.status, o.stdout, o.stderr)
	}
	return o.objects(t)
}

func TestPerfProcesses(t *testing.T) {
	lines := jsonOf(t, "perf allgather --ranks 3 --algo mcast,ring -b 0 -e 4096 -f 64 -n 2 -w 1 --overlap --json")
	if len(lines) != 8 { // 0, 1, 64, 4096
		t.Fatalf("%d lines, want 8", len(lines))
	}
	for _, l := range lines {
		o, ok := l["overlap_pct"].(float64)
		if l["wrong"] != 0. || l["ranks"] != 3. || l["iters"] != 2. || !ok || o < 0 || o > 100 {
			t.Errorf("%v", l)
		}
	}
}

// What multicast is for: the ring's ranks send everybody's block on.
func TestPerfInjects(t *testing.T) {
	lines := jsonOf(t, "perf allgather --ranks 8 --algo mcast,ring -b 1M -n 1 -w 1 -c 0 --json")
	mcast, ring := lines[0]["sent_bytes"].(float64), lines[1]["sent_bytes"].(float64)
	if ring < 6.5*mcast {
		t.Errorf("the busiest rank sent %.0f bytes with ring, %.0f with multicast: %.2f times as much, want 6.5", ring, mcast, ring/mcast)
	}
}

// Lost and doubled datagrams are repaired, counted, and not taken for wrong data.
func TestPerfFaults(t *testing.T) {
	l := jsonOf(t, "perf allgather --ranks 3 --algo mcast -b 256K -n 2 -w 0 --json", "ALLCAST_FAULT=drop=5%,dup=5%,seed=3")[0]
	for _, f := range []string{"repaired_bytes", "dropped_chunks", "duplicate_chunks", "chunks_total"} {
		if l[f].(float64) <= 0 {
			t.Errorf("%s is %v", f, l[f])
		}
	}
	if l["wrong"] != 0. {
		t.Errorf("%v bytes wrong", l["wrong"])
	}
}

func TestPerfTable(t *testing.T) {
	o := finish(t, process(t, fields("perf reduce-scatter --ranks 2 -b 8 -n 1 -w 0 -c 0")...))
	for _, want := range []string{"reduce-scatter of f32, sum; 2 ranks", "what one rank receives", "not verified", "busbw", " (auto)"} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("the table does not say %q:\n%s%s", want, o.stdout, o.stderr)
		}
	}
}

// Started by a launcher, it is one rank, and --ranks must agree.
func TestPerfAsRank(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := finish(t, process(t, "run", "-n", "2", "--", exe, "perf", "barrier", "-n", "1", "-w", "0", "--json"))
	if o.status != statusOK || !strings.HasPrefix(o.stdout, `[0] {"op":"barrier",`) || strings.Count(o.stdout, "\n") != 1 {
		t.Errorf("status %d: %q\n%s", o.status, o.stdout, o.stderr)
	}
	for _, env := range [][]string{
		{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1"}, // not 3
		{"WORLD_SIZE=3"},
		{"RANK=x", "WORLD_SIZE=3"},
		{"RANK=0", "WORLD_SIZE=3", "LOCAL_WORLD_SIZE=3", "ALLCAST_KEY=123"},
	} {
		cmd := process(t, fields("perf barrier --ranks 3")...)
		cmd.Env = append(cmd.Env, env...)
		if o := finish(t, cmd); o.status != statusUsage || o.stdout != "" {
			t.Errorf("%v: status %d: %s%s", env, o.status, o.stdout, o.stderr)
		}
	}
}

// A variable that makes no sense is the user's to mend.
func TestPerfBadVariable(t *testing.T) {
	cmd := process(t, fields("perf barrier --ranks 2 --json")...)
	cmd.Env = append(cmd.Env, "ALLCAST_TUNING=nonsense")
	if o := finish(t, cmd); o.status != statusUsage || !strings.Contains(o.stderr, "ALLCAST_TUNING") || o.stdout != "" {
		t.Errorf("status %d: %s%s", o.status, o.stdout, o.stderr)
	}
}
