package lab

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
)

// sweep runs perf in a lab and returns one result per size.
func sweep(t *testing.T, env []string, args, perf string) (results []map[string]any) {
	t.Helper()
	cmd := prepare(t, "run", args+" --json", append([]string{"allcast"}, strings.Fields(perf)...)...)
	cmd.Env = append(cmd.Env, env...)
	o := clitest.Finish(t, cmd)
	leftNothing(t)
	if o.Status != cli.StatusOK {
		t.Fatalf("%s: status %d\n%s\n%s", perf, o.Status, o.Stdout, o.Stderr)
	}
	for line := range strings.Lines(o.Stdout) {
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

// The kernel places received data for operations of any shape, in spite of loss, duplicates and reordering. A sweep by
// a factor F has sizes 0, 1, F and F*F. With chunks of 1K, some sizes are therefore just below and just above a chunk,
// and some cross the border of 1 MiB at which the kernel's memory is divided.
func TestDatapath(t *testing.T) {
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
				results := sweep(t, env, args, "perf "+c.args+" --json --algo mcast -n 2 -w 0 --datapath bpf --hook "+hook)
				if len(results) != c.sizes {
					t.Errorf("%s: %d results, want %d", c.args, len(results), c.sizes)
				}
				for _, l := range results {
					if l["wrong"] != 0.0 || l["algo"] != "mcast" || l["datapath"] != "bpf" || l["hook"] != hook ||
						l["ranks"] != float64(c.hosts) || l["fallback_reason"] != "" {
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

// Without loss, nothing is copied and nothing is repaired.
func TestDatapathDirect(t *testing.T) {
	for _, hook := range []string{"sockfilter", "tcx", "xdp"} {
		l := sweep(t, nil, "--topology star:3",
			"perf allgather --json --algo mcast -b 256K -n 3 -w 0 --datapath bpf --hook "+hook)[0]
		if l["wrong"] != 0.0 || l["hook"] != hook || l["copied_chunks"] != 0.0 && l["repaired_bytes"] == 0.0 {
			t.Errorf("%v", l)
		}
	}
}
