package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// labPerf runs perf in a lab, and returns a result for each size.
func labPerf(t *testing.T, env []string, args, perf string) (results []map[string]any) {
	t.Helper()
	cmd := labProcess(t, "run", args+" --json", append([]string{"allcast"}, fields(perf)...)...)
	cmd.Env = append(cmd.Env, env...)
	o := finish(t, cmd)
	labLeftNothing(t)
	if o.status != statusOK {
		t.Fatalf("%s: status %d\n%s\n%s", perf, o.status, o.stdout, o.stderr)
	}
	for line := range strings.Lines(o.stdout) {
		var l map[string]any
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if l["op"] != nil { // else the lab's counters
			results = append(results, l)
		}
	}
	return results
}

// The kernel puts in place what comes by a network, whatever the shape of an operation, and
// in spite of loss, duplicates and disorder. A sweep by a factor F has sizes 0, 1, F and F*F:
// so with chunks of 1K there are sizes just below a chunk, just above, and across the border of
// 1 MiB at which the kernel's memory is cut.
func TestLabDatapath(t *testing.T) {
	for _, hook := range []string{"sockfilter", "tcx", "xdp"} {
		t.Run(hook, func(t *testing.T) {
			chunks, repaired, dropped, duplicates := 0.0, 0.0, 0.0, 0.0
			for _, c := range []struct {
				hosts int
				args  string
				sizes int
			}{
				{2, "broadcast -b 0 -e 1100000 -f 1023 --chunk 1K --subgroups 2", 4},
				{3, "allgather -b 0 -e 1100000 -f 1025 --chunk 1K --inplace", 4},
				{4, "allgather -b 0 -e 1M -f 1024 --chunk 1K --subgroups 2 --chains 2", 4},
				{5, "broadcast -b 1048589", 1},
				{5, "allgather -b 1048589 --subgroups 2 --chains 2 --inplace", 1},
			} {
				args := fmt.Sprintf("--topology star:%d --groups 2", c.hosts)
				env := []string{"ALLCAST_FAULT=drop=2%,dup=2%,reorder=10%,seed=3"}
				results := labPerf(t, env, args, "perf "+c.args+" --json --algo mcast -n 2 --datapath bpf --hook "+hook)
				if len(results) != c.sizes {
					t.Errorf("%s: %d results, want %d", c.args, len(results), c.sizes)
				}
				for _, l := range results {
					if l["wrong"] != 0.0 || l["algo"] != "mcast" || l["datapath"] != "bpf" || l["hook"] != hook || l["ranks"] != float64(c.hosts) || l["fallback_reason"] != "" {
						t.Errorf("%s: %v", c.args, l)
					}
					chunks += l["chunks_total"].(float64)
					repaired += l["repaired_bytes"].(float64)
					dropped += l["dropped_chunks"].(float64)
					duplicates += l["duplicate_chunks"].(float64)
				}
			}
			t.Logf("%v chunks, %v dropped, %v duplicates, %v bytes repaired", chunks, dropped, duplicates, repaired)
			if repaired == 0 || dropped == 0 || duplicates == 0 {
				t.Errorf("%v dropped, %v duplicates, %v bytes repaired", dropped, duplicates, repaired)
			}
		})
	}
}

// Nothing is copied, and nothing goes by another way, when nothing is lost.
func TestLabDatapathDirect(t *testing.T) {
	for _, hook := range []string{"sockfilter", "tcx", "xdp"} {
		l := labPerf(t, nil, "--topology star:3", "perf allgather --json --algo mcast -b 256K -n 3 --datapath bpf --hook "+hook)[0]
		if l["wrong"] != 0.0 || l["hook"] != hook || l["copied_chunks"] != 0.0 && l["repaired_bytes"] == 0.0 {
			t.Errorf("%v", l)
		}
	}
}
